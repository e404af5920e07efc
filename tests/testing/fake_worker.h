#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "baton/v1/decode.pb.h"
#include "baton/v1/worker.pb.h"

namespace baton::testing {

// A worker without an engine: a gRPC server on a free port of 127.0.0.1 that answers GetInfo and,
// in place of decoding, does what a test says. Thread-safe.
class FakeWorker {
 public:
  // What happens to one Decode.Generate.
  struct Plan {
    std::vector<v1::DecodeGenerateResponse> messages = {};
    absl::Status status = {};  // how the call ends; a FailureDetail may be attached
    bool hang = false;         // after the messages: until Release or until the caller cancels
  };
  using Behaviour = std::function<Plan(const v1::DecodeGenerateRequest&)>;

  explicit FakeWorker(v1::WorkerRole role);
  ~FakeWorker();

  std::string address() const;
  v1::WorkerRef self() const;

  // Echoes the prompt's tokens, one a message, up to max_tokens, unless set.
  void SetBehaviour(Behaviour behaviour);
  // Ends calls that hang, and all that would.
  void Release();
  void SetInfo(const std::function<void(v1::GetInfoResponse&)>& change);

  // Requests in the order in which they came.
  std::vector<v1::DecodeGenerateRequest> requests() const;
  // Both wait, up to ten seconds, and say whether it came to that.
  bool WaitForRequests(size_t count) const;
  bool WaitForCancelled(size_t count) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The token with -0.5, then those of the following ids with one less each.
v1::TokenLogprobs Logprobs(int32_t token, uint32_t top);

// Messages of a successful answer: `tokens` one by one, with log-probabilities if they are asked
// for, the last with `reason` and, if given, the prefill worker that served it.
std::vector<v1::DecodeGenerateResponse> Answer(const v1::DecodeGenerateRequest& request,
                                               const std::vector<int32_t>& tokens,
                                               v1::FinishReason reason = v1::FINISH_REASON_STOP);

}  // namespace baton::testing
