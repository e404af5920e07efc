#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "common/mutex.h"
#include "router/dispatch/generation.h"
#include "router/http/handler.h"
#include "router/openai/response.h"

namespace baton::router {

// The answer to one HTTP request out of the generations of its choices: one JSON body, or a stream
// whose chunks say which choice they belong to. The first choice that fails ends it, and the others
// are cancelled. Thread-safe.
class HttpAnswer : public std::enable_shared_from_this<HttpAnswer> {
 public:
  HttpAnswer(std::shared_ptr<HttpReply> reply, ResponseHeader header, std::string request_id,
             bool stream, size_t choices);

  // One for each choice.
  std::vector<std::shared_ptr<GenerationSink>> Sinks();

  // Once, with the generations of those. The first starts now; the others, whose prompt is the
  // same, when its first token has come: then the prompt is in a cache.
  void Start(std::vector<std::shared_ptr<Generation>> generations);

  // Of all that have not ended. Not to be called by a sink.
  void Cancel(const absl::Status& status);

 private:
  class ChoiceSink;

  void OnDelta(size_t choice, const GenerationDelta& delta);
  void OnEnd(size_t choice, GenerationDelta all, const GenerationEnd& end);
  void PostStartWaiting();
  void StartWaiting();
  void CancelOthers();  // than the one that failed

  void Fail(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The head of a stream, and the first chunk of a choice, unless they have been written.
  void Open(size_t choice) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Respond(HttpResponse response) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  ResponseHeader HeaderOf(size_t choice) const;

  const std::shared_ptr<HttpReply> reply_;
  const ResponseHeader header_;
  const std::string request_id_;
  const bool stream_;
  std::atomic<bool> failed_ = false;

  Mutex mutex_;
  std::vector<std::weak_ptr<Generation>> generations_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Generation>> waiting_ ABSL_GUARDED_BY(mutex_);  // for the first
  std::vector<bool> opened_ ABSL_GUARDED_BY(mutex_);                          // by choice
  bool streaming_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<FinishedChoice> finished_ ABSL_GUARDED_BY(mutex_);  // by choice
  size_t running_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace baton::router
