#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/log_limit.h"
#include "common/mutex.h"
#include "router/dispatch/attempt_tracker.h"
#include "router/dispatch/decode_client.h"
#include "router/dispatch/generation_events.h"
#include "router/dispatch/text_pipeline.h"
#include "router/metrics.h"
#include "router/policy/route.h"
#include "router/registry/registry.h"

namespace baton::router {

// What all generations of a router share. Everything outlives them.
struct GenerationEnvironment {
  Registry* registry = nullptr;
  Scorer* scorer = nullptr;
  DecodeClient* decode = nullptr;
  RouterMetrics* metrics = nullptr;
  const Clock* clock = nullptr;
  int max_attempts = 2;
  std::atomic<uint64_t> tickets{0};
  LogLimit failed_attempts{16, std::chrono::seconds(1)};  // a request may have as many choices
};

struct GenerationSpec {
  RequestId id;
  std::string client_id = {};  // for logs; its other choices have it, too
  Endpoint endpoint = Endpoint::kOther;
  std::shared_ptr<const std::vector<int32_t>> prompt_tokens;
  SamplingParams sampling;             // with seed; max_tokens is filled in for each attempt
  std::optional<uint32_t> max_tokens;  // unset: what the context leaves
  TextPipelineSpec text;
  // Deltas go to the sink as they come. Otherwise all output comes with the end, and the request
  // can be retried up to then.
  bool stream = false;
  // Of an answer with log-probabilities that is not streamed: one with more is an error.
  size_t max_held_tokens = std::numeric_limits<size_t>::max();
  Clock::TimePoint arrival{};
  Clock::TimePoint deadline{};
  bool starts_late = false;  // after another choice's first token: that wait is none for its own
};

// One request from admission to the last token: opens attempts on decode workers, turns tokens into
// text and hands it to the sink.
//
//   Start -> attempt 1 -> ended             the sink's OnEnd was called, once
//                      -> attempt 2 ...     only while the client has seen nothing
//
// Thread-safe. The sink is called with a lock held; see GenerationSink.
class Generation final : public DecodeCallHandler, public std::enable_shared_from_this<Generation> {
 public:
  // `on_end` runs once, after the sink's OnEnd, with the same restrictions.
  Generation(GenerationEnvironment* environment, GenerationSpec spec,
             std::shared_ptr<GenerationSink> sink, std::function<void()> on_end);
  ~Generation() override;

  // Once, or never if it is cancelled. Errors, too, go to the sink.
  void Start();

  // Ends the request with `status` unless it has ended.
  void Cancel(absl::Status status);

  const RequestId& id() const { return spec_.id; }

 private:
  void OnDecodeMessage(uint32_t attempt, DecodeMessage message) override;
  void OnDecodeEnd(uint32_t attempt, AttemptFailure outcome) override;

  absl::Status StartAttempt() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Route> Choose(const Snapshot& snapshot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  DecodeAttempt MakeAttempt(const Route& route) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ObserveTokens(size_t count) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PushTokens(DecodeMessage message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EmitPending() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnAttemptFailed(const AttemptFailure& failure) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndOk() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void End(absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  GenerationEnvironment* const environment_;
  const GenerationSpec spec_;

  Mutex mutex_;
  std::shared_ptr<GenerationSink> sink_ ABSL_GUARDED_BY(mutex_);  // null once ended
  std::function<void()> on_end_ ABSL_GUARDED_BY(mutex_);
  AttemptTracker tracker_ ABSL_GUARDED_BY(mutex_);

  // Of the present attempt.
  std::shared_ptr<DecodeCall> call_ ABSL_GUARDED_BY(mutex_);
  WorkerId decode_worker_ ABSL_GUARDED_BY(mutex_);
  WorkLease decode_lease_ ABSL_GUARDED_BY(mutex_);
  WorkLease prefill_lease_ ABSL_GUARDED_BY(mutex_);  // until the first token
  std::unique_ptr<TextPipeline> text_ ABSL_GUARDED_BY(mutex_);
  GenerationDelta pending_ ABSL_GUARDED_BY(mutex_);  // not yet handed to the sink
  GenerationEnd end_ ABSL_GUARDED_BY(mutex_);
  Clock::TimePoint awaited_since_ ABSL_GUARDED_BY(mutex_);  // the first token
  Clock::TimePoint attempt_started_ ABSL_GUARDED_BY(mutex_){};
  std::optional<Clock::TimePoint> last_token_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace baton::router
