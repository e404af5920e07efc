#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "common/gate.h"
#include "common/mutex.h"
#include "router/dispatch/generation.h"
#include "router/dispatch/generation_request.h"
#include "router/dispatch/served_model.h"

namespace baton::router {

struct GenerationServiceOptions {
  int max_concurrent_requests = 1024;
  std::chrono::nanoseconds request_timeout = std::chrono::minutes(10);
  size_t max_prompt_tokens = 0;            // 0: as many as the largest decode worker can hold
  int64_t max_logprobs_bytes = 512 << 20;  // of an answer that is not streamed, as estimated
};

// The way in for every front end: admits, renders, tokenizes and starts generations, and knows all
// that run. Thread-safe.
class GenerationService {
 public:
  // Pointers must outlive this object.
  GenerationService(const ServedModel* model, GenerationEnvironment* environment,
                    GenerationServiceOptions options);
  // Every generation must have ended: Close, CancelAll, WaitEmpty.
  ~GenerationService();

  // Takes CPU time for long prompts. On an error the sink is not called and the outcome is counted:
  // UNAVAILABLE when draining or full, NOT_FOUND for another model, INVALID_ARGUMENT, OUT_OF_RANGE
  // for a prompt that is too long or fits no worker. `timeout` shortens the configured one.
  absl::StatusOr<std::shared_ptr<Generation>> Start(GenerationRequest request,
                                                    std::shared_ptr<GenerationSink> sink,
                                                    std::chrono::nanoseconds timeout);
  absl::StatusOr<std::shared_ptr<Generation>> Start(GenerationRequest request,
                                                    std::shared_ptr<GenerationSink> sink) {
    return Start(std::move(request), std::move(sink), options_.request_timeout);
  }

  // Several answers to one prompt, one for each sink, admitted all or none: the i-th has the seed
  // plus i and, but for the first, an id of its own. None runs yet: all are to be started or
  // cancelled. Otherwise as Start; INVALID_ARGUMENT, too, for more than can ever run at a time and
  // for log-probabilities that would take too much memory.
  absl::StatusOr<std::vector<std::shared_ptr<Generation>>> Prepare(
      GenerationRequest request, std::vector<std::shared_ptr<GenerationSink>> sinks,
      std::chrono::nanoseconds timeout);
  absl::StatusOr<std::vector<std::shared_ptr<Generation>>> Prepare(
      GenerationRequest request, std::vector<std::shared_ptr<GenerationSink>> sinks) {
    return Prepare(std::move(request), std::move(sinks), options_.request_timeout);
  }

  // From now on nothing is admitted.
  void Close() { gate_.Close(); }
  bool closed() const { return gate_.closed(); }
  // Waits for those that run; false when `timeout` passed first.
  bool WaitEmpty(std::chrono::nanoseconds timeout) { return gate_.WaitEmpty(timeout); }
  void CancelAll(const absl::Status& status);
  int running() const { return gate_.inside(); }

  const ServedModel& model() const { return *model_; }
  std::shared_ptr<const Snapshot> workers() const { return environment_->registry->Current(); }

 private:
  absl::StatusOr<std::vector<Gate::Pass>> Admit(size_t count);
  absl::Status CheckTextLength(size_t bytes) const;
  absl::StatusOr<std::vector<int32_t>> Tokenize(const GenerationRequest& request) const;
  absl::Status BoundLogprobs(size_t choices, GenerationSpec* spec) const;
  absl::StatusOr<GenerationSpec> MakeSpec(const GenerationRequest& request) const;
  absl::StatusOr<std::vector<std::shared_ptr<Generation>>> TryPrepare(
      const GenerationRequest& request, std::vector<std::shared_ptr<GenerationSink>> sinks,
      std::chrono::nanoseconds timeout);
  std::shared_ptr<Generation> Make(GenerationSpec spec, std::shared_ptr<GenerationSink> sink,
                                   Gate::Pass pass);

  const ServedModel* const model_;
  GenerationEnvironment* const environment_;
  const GenerationServiceOptions options_;
  Gate gate_;

  Mutex mutex_;
  absl::flat_hash_map<RequestId, std::weak_ptr<Generation>> running_ ABSL_GUARDED_BY(mutex_);
};

// What front ends answer that have no such service yet: the client asks again.
inline absl::Status StillStarting() {
  return absl::UnavailableError("the router is still starting");
}

}  // namespace baton::router
