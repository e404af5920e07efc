#pragma once

#include "baton/v1/inference.grpc.pb.h"
#include "router/dispatch/generation_service.h"

namespace baton::router {

// baton.v1.Inference for clients that speak gRPC. Thread-safe.
class InferenceService final : public v1::Inference::CallbackService {
 public:
  // `service` must outlive this object and every call.
  explicit InferenceService(GenerationService* service) : service_(service) {}

  grpc::ServerWriteReactor<v1::GenerateResponse>* Generate(
      grpc::CallbackServerContext* context, const v1::GenerateRequest* request) override;
  grpc::ServerUnaryReactor* ListModels(grpc::CallbackServerContext* context,
                                       const v1::ListModelsRequest* request,
                                       v1::ListModelsResponse* response) override;

 private:
  GenerationService* const service_;
};

}  // namespace baton::router
