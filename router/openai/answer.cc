#include "router/openai/answer.h"

#include <utility>

#include "router/openai/error.h"

namespace baton::router {

class HttpAnswer::ChoiceSink final : public GenerationSink {
 public:
  ChoiceSink(std::shared_ptr<HttpAnswer> answer, size_t choice)
      : answer_(std::move(answer)), choice_(choice) {}

  void OnFirstToken() override {
    if (choice_ == 0) answer_->PostStartWaiting();
  }
  void OnDelta(GenerationDelta delta) override { answer_->OnDelta(choice_, delta); }
  void OnEnd(GenerationDelta all, const GenerationEnd& end) override {
    answer_->OnEnd(choice_, std::move(all), end);
    if (choice_ == 0) answer_->PostStartWaiting();
  }

 private:
  const std::shared_ptr<HttpAnswer> answer_;
  const size_t choice_;
};

HttpAnswer::HttpAnswer(std::shared_ptr<HttpReply> reply, ResponseHeader header,
                       std::string request_id, bool stream, size_t choices)
    : reply_(std::move(reply)),
      header_(std::move(header)),
      request_id_(std::move(request_id)),
      stream_(stream),
      opened_(choices),
      finished_(choices),
      running_(choices) {}

std::vector<std::shared_ptr<GenerationSink>> HttpAnswer::Sinks() {
  std::vector<std::shared_ptr<GenerationSink>> sinks;
  MutexLock lock(mutex_);
  for (size_t choice = 0; choice < running_; ++choice) {
    sinks.push_back(std::make_shared<ChoiceSink>(shared_from_this(), choice));
  }
  return sinks;
}

void HttpAnswer::Start(std::vector<std::shared_ptr<Generation>> generations) {
  const std::shared_ptr<Generation> first = generations.front();
  {
    MutexLock lock(mutex_);
    generations_.assign(generations.begin(), generations.end());
    waiting_.assign(generations.begin() + 1, generations.end());
  }
  first->Start();
  if (failed_) CancelOthers();  // one may have ended before, since the router shuts down
}

// Sinks are called with the lock of their generation held, on a thread that reads from a worker.
void HttpAnswer::PostStartWaiting() {
  reply_->Post([self = shared_from_this()] { self->StartWaiting(); });
}

void HttpAnswer::StartWaiting() {
  std::vector<std::shared_ptr<Generation>> waiting;
  {
    MutexLock lock(mutex_);
    if (failed_) return;  // they are left to Cancel
    waiting.swap(waiting_);
  }
  for (const std::shared_ptr<Generation>& generation : waiting) generation->Start();
}

void HttpAnswer::CancelOthers() {
  Cancel(absl::CancelledError("another choice of the request has failed"));
}

void HttpAnswer::Cancel(const absl::Status& status) {
  std::vector<std::weak_ptr<Generation>> generations;
  std::vector<std::shared_ptr<Generation>> waiting;  // kept until they are cancelled
  {
    MutexLock lock(mutex_);
    generations = generations_;
    waiting.swap(waiting_);
  }
  for (const std::weak_ptr<Generation>& weak : generations) {
    if (const std::shared_ptr<Generation> generation = weak.lock()) generation->Cancel(status);
  }
}

ResponseHeader HttpAnswer::HeaderOf(size_t choice) const {
  ResponseHeader header = header_;
  header.choice = choice;
  return header;
}

void HttpAnswer::OnDelta(size_t choice, const GenerationDelta& delta) {
  MutexLock lock(mutex_);
  if (failed_) return;
  Open(choice);
  reply_->Write(DeltaEvents(HeaderOf(choice), delta));
}

void HttpAnswer::OnEnd(size_t choice, GenerationDelta all, const GenerationEnd& end) {
  MutexLock lock(mutex_);
  if (failed_) return;
  if (!end.status.ok()) {
    Fail(end.status);
    return;
  }
  finished_[choice] = {.all = std::move(all), .end = end};
  --running_;
  if (!stream_) {
    if (running_ == 0) Respond({.body = CompleteBody(header_, finished_)});
    return;
  }
  Open(choice);
  if (running_ > 0) {
    reply_->Write(FinishEvent(HeaderOf(choice), end));
  } else {
    reply_->Write(ClosingEvents(HeaderOf(choice), finished_));
    reply_->Finish();
  }
}

void HttpAnswer::Fail(const absl::Status& status) {
  failed_ = true;
  reply_->Post([self = shared_from_this()] { self->CancelOthers(); });
  const ApiError error = ErrorOf(status, header_.field_names);
  if (!streaming_) {
    Respond(ErrorResponse(error));
  } else {
    reply_->Write(ErrorEvent(error));
    reply_->Finish();
  }
}

void HttpAnswer::Respond(HttpResponse response) {
  response.headers.emplace_back("x-request-id", request_id_);
  reply_->Respond(std::move(response));
}

void HttpAnswer::Open(size_t choice) {
  if (!std::exchange(streaming_, true)) {
    HttpResponse head{.content_type = "text/event-stream; charset=utf-8"};
    head.headers.emplace_back("Cache-Control", "no-cache");
    head.headers.emplace_back("X-Accel-Buffering", "no");  // proxies must pass each token on
    head.headers.emplace_back("x-request-id", request_id_);
    reply_->StartStream(std::move(head));
  }
  if (opened_[choice]) return;
  opened_[choice] = true;
  reply_->Write(OpeningEvent(HeaderOf(choice)));
}

}  // namespace baton::router
