#pragma once

#include <functional>

#include "baton/v1/decode.grpc.pb.h"
#include "decode/decoder.h"

namespace baton::decode {

// Decode on the wire: turns messages into calls of the Decoder and back.
class DecodeService final : public v1::Decode::CallbackService {
 public:
  // `decoder` outlives every call: shut the server down first. `self` says who this worker is.
  DecodeService(Decoder& decoder, std::function<v1::WorkerRef()> self)
      : decoder_(decoder), self_(std::move(self)) {}

  grpc::ServerWriteReactor<v1::DecodeGenerateResponse>* Generate(
      grpc::CallbackServerContext* context, const v1::DecodeGenerateRequest* request) override;
  grpc::ServerUnaryReactor* Finish(grpc::CallbackServerContext* context,
                                   const v1::DecodeFinishRequest* request,
                                   v1::DecodeFinishResponse* response) override;

 private:
  Decoder& decoder_;
  const std::function<v1::WorkerRef()> self_;
};

}  // namespace baton::decode
