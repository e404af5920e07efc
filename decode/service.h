#pragma once

#include <atomic>

#include "baton/v1/decode.grpc.pb.h"
#include "decode/decoder.h"

namespace baton::decode {

// Decode on the wire: turns messages into calls of the Decoder and back.
class DecodeService final : public v1::Decode::CallbackService {
 public:
  // Requests go to `decoder` from now on; until then calls are UNAVAILABLE. It outlives every call:
  // shut the server down first. `self` is this worker as others know it. Once.
  void Begin(Decoder& decoder, const v1::WorkerRef& self);

  grpc::ServerWriteReactor<v1::DecodeGenerateResponse>* Generate(
      grpc::CallbackServerContext* context, const v1::DecodeGenerateRequest* request) override;
  grpc::ServerUnaryReactor* Finish(grpc::CallbackServerContext* context,
                                   const v1::DecodeFinishRequest* request,
                                   v1::DecodeFinishResponse* response) override;

 private:
  v1::WorkerRef self_;  // written before decoder_, read after it
  std::atomic<Decoder*> decoder_{nullptr};
};

}  // namespace baton::decode
