#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/mutex.h"
#include "common/rpc/status.h"
#include "common/rpc/write_queue.h"
#include "grpcpp/support/server_callback.h"

// The server's end of streaming calls. A service method creates one, hands the pointer to whoever
// answers, and returns reactor() to gRPC:
//
//   grpc::ServerWriteReactor<Resp>* Generate(grpc::CallbackServerContext*, const Req* request) {
//     auto writer = QueuedServerWriter<Resp>::Create(max_tokens, [](absl::Status status) {...});
//     engine.Submit(*request, writer);
//     return writer->reactor();
//   }
//
// Ownership: the call owns itself until on_done has returned; whoever else holds the pointer may
// use it for longer, to no effect. Callbacks and what they capture are destroyed after on_done.
// Threads: every method from any thread; none blocks. Callbacks run on gRPC's threads, one at a
// time per call, with no lock held, and must not block.

namespace baton::rpc {

// What both kinds have in common: a bounded queue of answers and one end.
template <typename Reactor, typename Response>
class QueuedServerCall : public Reactor {
 public:
  // False, with the message dropped, once the call has ended or is to end. When `max_queued`
  // messages, or more than `max_queued_bytes`, would wait because the client reads too slowly, the
  // call ends with RESOURCE_EXHAUSTED: nothing is dropped silently and no caller ever waits for a
  // client. (on_done may then be long in coming, until the client has read on or is gone: who
  // writes gives up when Write says so, and who will not wait cancels the call.)
  bool Write(Response message) {
    MutexLock lock(mutex_);
    if (final_status_.has_value()) return false;
    if (!queue_.Push(std::move(message))) {
      const size_t waiting = queue_.waiting();
      queue_.Discard();
      final_status_ = absl::ResourceExhaustedError(
          absl::StrCat("the client reads too slowly: ", waiting, " messages wait for it"));
    }
    Pump();
    return final_status_ == std::nullopt;
  }

  // Ends the call once everything queued has been sent. The first end counts: no effect after
  // another Finish, a cancellation or an overflow.
  void Finish(absl::Status status) {
    MutexLock lock(mutex_);
    if (final_status_.has_value()) return;
    final_status_ = std::move(status);
    Pump();
  }

  // No more messages are taken: the call has ended or is to end.
  bool ending() const {
    MutexLock lock(mutex_);
    return final_status_.has_value();
  }
  // For how long the client has taken nothing although there is something for it; 0 if there is
  // nothing.
  std::chrono::nanoseconds stalled() const {
    MutexLock lock(mutex_);
    if (!stalled_since_) return std::chrono::nanoseconds::zero();
    return std::chrono::steady_clock::now() - *stalled_since_;
  }

  // To be returned from the service method, once.
  Reactor* reactor() { return this; }

 protected:
  // Exactly once, last of all callbacks. The status is what ended the call: that of Finish when it
  // was sent, CANCELLED when the client cancelled or died or the deadline passed before that.
  using DoneCallback = std::function<void(absl::Status)>;

  QueuedServerCall(size_t max_queued, DoneCallback on_done, size_t max_queued_bytes = kAnyBytes)
      : queue_(max_queued, max_queued_bytes), on_done_(std::move(on_done)) {}

  void OwnItself(std::shared_ptr<QueuedServerCall> self) { self_ = std::move(self); }

  // Runs `start`, which starts an operation on the stream, unless the call is to end.
  template <typename StartOperation>
  void StartUnlessEnding(StartOperation start) {
    MutexLock lock(mutex_);
    if (!final_status_.has_value()) start();
  }

  // Destroys the callbacks of the derived class.
  virtual void ReleaseCallbacks() {}

 private:
  // gRPC never runs a callback inside the call that starts an operation, hence under the lock.
  void Pump() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (const Response* next = queue_.StartNext()) {
      stalled_since_ = std::chrono::steady_clock::now();
      this->StartWrite(next);
    } else if (final_status_.has_value() && queue_.idle() && !finish_sent_) {
      finish_sent_ = true;
      stalled_since_ = std::chrono::steady_clock::now();
      Reactor::Finish(ToGrpc(*final_status_));
    }
  }

  void OnWriteDone(bool ok) final {
    MutexLock lock(mutex_);
    queue_.Written();
    stalled_since_.reset();
    if (!ok) EndCancelled();
    Pump();
  }

  void OnCancel() final {
    MutexLock lock(mutex_);
    EndCancelled();
    Pump();
  }

  void EndCancelled() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    queue_.Discard();
    final_status_ = absl::CancelledError("the caller has enough, is gone or ran out of time");
  }

  void OnDone() final {
    const std::shared_ptr<QueuedServerCall> self = std::move(self_);
    absl::Status status;
    {
      MutexLock lock(mutex_);
      status = *final_status_;
    }
    if (on_done_) std::exchange(on_done_, nullptr)(std::move(status));
    ReleaseCallbacks();
  }

  mutable Mutex mutex_;
  WriteQueue<Response> queue_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> final_status_ ABSL_GUARDED_BY(mutex_);  // set: the call is to end
  bool finish_sent_ ABSL_GUARDED_BY(mutex_) = false;
  // Of the write or the end that gRPC has not yet got rid of.
  std::optional<std::chrono::steady_clock::time_point> stalled_since_ ABSL_GUARDED_BY(mutex_);
  DoneCallback on_done_;
  std::shared_ptr<QueuedServerCall> self_;
};

// One request, many responses.
template <typename Response>
class QueuedServerWriter final
    : public QueuedServerCall<grpc::ServerWriteReactor<Response>, Response> {
 public:
  static std::shared_ptr<QueuedServerWriter> Create(size_t max_queued,
                                                    std::function<void(absl::Status)> on_done) {
    std::shared_ptr<QueuedServerWriter> call(
        new QueuedServerWriter(max_queued, std::move(on_done)));
    call->OwnItself(call);
    return call;
  }

 private:
  using QueuedServerCall<grpc::ServerWriteReactor<Response>, Response>::QueuedServerCall;
};

// Many requests, many responses.
template <typename Request, typename Response>
class QueuedServerBidi final
    : public QueuedServerCall<grpc::ServerBidiReactor<Request, Response>, Response> {
 public:
  struct Callbacks {
    // The next message is read when this has returned. Not called once the call is to end.
    std::function<void(Request&&)> on_message = nullptr;
    // The client sends no more: it said so, or it is gone and on_done follows. Optional.
    std::function<void()> on_half_close = nullptr;
    std::function<void(absl::Status)> on_done = nullptr;  // as above
  };

  // No callback runs before reactor() has been returned to gRPC.
  static std::shared_ptr<QueuedServerBidi> Create(size_t max_queued, Callbacks callbacks,
                                                  size_t max_queued_bytes = kAnyBytes) {
    std::shared_ptr<QueuedServerBidi> call(
        new QueuedServerBidi(max_queued, std::move(callbacks), max_queued_bytes));
    call->OwnItself(call);
    call->StartRead(&call->request_);
    return call;
  }

 private:
  using Base = QueuedServerCall<grpc::ServerBidiReactor<Request, Response>, Response>;

  QueuedServerBidi(size_t max_queued, Callbacks callbacks, size_t max_queued_bytes)
      : Base(max_queued, std::move(callbacks.on_done), max_queued_bytes),
        on_message_(std::move(callbacks.on_message)),
        on_half_close_(std::move(callbacks.on_half_close)) {}

  void OnReadDone(bool ok) override {
    if (this->ending()) return;
    if (!ok) {
      if (on_half_close_) on_half_close_();
      return;
    }
    on_message_(std::move(request_));
    request_.Clear();
    this->StartUnlessEnding([this] { this->StartRead(&request_); });
  }

  void ReleaseCallbacks() override {
    on_message_ = nullptr;
    on_half_close_ = nullptr;
  }

  std::function<void(Request&&)> on_message_;
  std::function<void()> on_half_close_;
  Request request_;
};

}  // namespace baton::rpc
