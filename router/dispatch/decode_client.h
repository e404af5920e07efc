#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/ids.h"
#include "common/sampling_params.h"
#include "router/dispatch/attempt_tracker.h"
#include "router/dispatch/generation_events.h"

// Calls to decode workers, without gRPC in the interface.

namespace baton::router {

struct DecodeAttempt {
  AttemptId id;
  std::shared_ptr<const std::vector<int32_t>> prompt_tokens;
  SamplingParams sampling;
  std::vector<WorkerId> prefill_workers;  // in order of preference; empty: prefill locally
  std::chrono::nanoseconds timeout{};     // of the whole attempt
};

struct DecodeMessage {
  std::vector<int32_t> token_ids = {};       // delta
  std::vector<TokenLogprobs> logprobs = {};  // one for each of these, if they are asked for
  Usage usage;
  FinishReason finish_reason = FinishReason::kNone;
  std::optional<HandoffFigures> handoff = {};
};

// Receives what one call yields: messages in order, then OnDecodeEnd once; never two calls at a
// time. Runs on a gRPC thread, hence must not block.
class DecodeCallHandler {
 public:
  virtual ~DecodeCallHandler() = default;
  virtual void OnDecodeMessage(uint32_t attempt, DecodeMessage message) = 0;
  virtual void OnDecodeEnd(uint32_t attempt, AttemptFailure outcome) = 0;
};

class DecodeCall {
 public:
  virtual ~DecodeCall() = default;
  // Ends the call soon, with CANCELLED unless it has ended. Idempotent; any thread; does not call
  // the handler before it returns.
  virtual void Cancel() = 0;
  // The answer is complete here although the worker would go on: it counts the request as finished.
  // The call ends soon, with OK, or as by Cancel if the worker cannot be told. Once.
  virtual void Finish() = 0;
};

class DecodeClient {
 public:
  virtual ~DecodeClient() = default;
  // The handler may be called, on another thread, before this returns. It is kept alive until the
  // call has ended, whether or not the returned handle is kept.
  virtual std::shared_ptr<DecodeCall> Generate(const std::string& target, DecodeAttempt attempt,
                                               std::shared_ptr<DecodeCallHandler> handler) = 0;
};

}  // namespace baton::router
