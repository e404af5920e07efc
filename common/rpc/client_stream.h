#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/mutex.h"
#include "common/rpc/status.h"
#include "common/rpc/write_queue.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/client_callback.h"

// The client's end of streaming calls:
//
//   auto call = ServerStreamCall<Resp>::Create({.on_message = ..., .on_done = ...});
//   SetTimeout(call->context(), timeout);
//   call->Start([&](auto* context, auto* reactor) {
//     stub.async()->Generate(context, &request, reactor);  // request lives until Start returns
//   });
//
// Ownership: a started call owns itself until on_done has returned; dropping the pointer does not
// cancel it. Callbacks and what they capture are destroyed after on_done. The stub and channel may
// go at any time.
// Threads: Write, HalfClose and Cancel from any thread, at any time, even after the end; none
// blocks. Callbacks run on gRPC's threads, possibly before Start has returned, one at a time per
// call, with no lock held, and must not block.

namespace baton::rpc {

// Many responses to one request.
template <typename Response>
class ServerStreamCall final : private grpc::ClientReadReactor<Response>,
                               public std::enable_shared_from_this<ServerStreamCall<Response>> {
 public:
  struct Callbacks {
    // The next message is read when this has returned. May be called after Cancel.
    std::function<void(Response&&)> on_message = nullptr;
    // Exactly once, last of all callbacks, with the status of the call.
    std::function<void(absl::Status)> on_done = nullptr;
  };

  static std::shared_ptr<ServerStreamCall> Create(Callbacks callbacks) {
    return std::shared_ptr<ServerStreamCall>(new ServerStreamCall(std::move(callbacks)));
  }

  // For deadline and metadata, before Start.
  grpc::ClientContext& context() { return context_; }

  // `start(grpc::ClientContext*, grpc::ClientReadReactor<Response>*)` calls the stub. Once.
  template <typename StartMethod>
  void Start(StartMethod start) {
    self_ = this->shared_from_this();
    start(&context_, static_cast<grpc::ClientReadReactor<Response>*>(this));
    this->StartRead(&response_);
    this->StartCall();
  }

  // on_done follows, with CANCELLED unless the call had ended by itself.
  void Cancel() { context_.TryCancel(); }

 private:
  explicit ServerStreamCall(Callbacks callbacks) : callbacks_(std::move(callbacks)) {}

  void OnReadDone(bool ok) override {
    if (!ok) return;  // OnDone follows
    callbacks_.on_message(std::move(response_));
    response_.Clear();
    this->StartRead(&response_);
  }

  void OnDone(const grpc::Status& status) override {
    const std::shared_ptr<ServerStreamCall> self = std::move(self_);
    callbacks_.on_done(FromGrpc(status));
    callbacks_ = {};
  }

  grpc::ClientContext context_;
  Callbacks callbacks_;
  Response response_;
  std::shared_ptr<ServerStreamCall> self_;
};

// Messages both ways.
template <typename Request, typename Response>
class BidiCall final : private grpc::ClientBidiReactor<Request, Response>,
                       public std::enable_shared_from_this<BidiCall<Request, Response>> {
 public:
  struct Callbacks {
    std::function<void(Response&&)> on_message = nullptr;  // as above
    std::function<void(absl::Status)> on_done = nullptr;   // as above
  };

  static std::shared_ptr<BidiCall> Create(size_t max_queued, Callbacks callbacks) {
    return std::shared_ptr<BidiCall>(new BidiCall(max_queued, std::move(callbacks)));
  }

  // For deadline and metadata, before Start.
  grpc::ClientContext& context() { return context_; }

  // `start(grpc::ClientContext*, grpc::ClientBidiReactor<Request, Response>*)` calls the stub.
  // Once. What was written before is sent first.
  template <typename StartMethod>
  void Start(StartMethod start) {
    self_ = this->shared_from_this();
    start(&context_, static_cast<grpc::ClientBidiReactor<Request, Response>*>(this));
    // Writes come from outside of reactions: the hold keeps the stream until reading has ended.
    this->AddHold();
    this->StartRead(&response_);
    {
      MutexLock lock(mutex_);
      started_ = true;
      Pump();
    }
    this->StartCall();
  }

  // False, with the message dropped, once the call has ended, is cancelled or half-closed. When
  // `max_queued` messages wait because the server reads too slowly, the call is cancelled and ends
  // with RESOURCE_EXHAUSTED.
  bool Write(Request message) {
    {
      MutexLock lock(mutex_);
      if (closed_ || half_close_) return false;
      if (queue_.Push(std::move(message))) {
        Pump();
        return true;
      }
      overflowed_ = true;
      Close();
    }
    context_.TryCancel();
    return false;
  }

  // Tells the server, once everything queued has been sent, that no more will come.
  void HalfClose() {
    MutexLock lock(mutex_);
    half_close_ = true;
    Pump();
  }

  // on_done follows, with CANCELLED unless the call had ended by itself.
  void Cancel() {
    {
      MutexLock lock(mutex_);
      Close();
    }
    context_.TryCancel();
  }

 private:
  BidiCall(size_t max_queued, Callbacks callbacks)
      : queue_(max_queued), callbacks_(std::move(callbacks)) {}

  // gRPC never runs a callback inside the call that starts an operation, hence under the lock: no
  // operation starts once OnReadDone has given up the hold.
  void Pump() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!started_ || closed_) return;
    if (const Request* next = queue_.StartNext()) {
      this->StartWrite(next);
    } else if (half_close_ && queue_.idle() && !half_close_sent_) {
      half_close_sent_ = true;
      this->StartWritesDone();
    }
  }

  void Close() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    closed_ = true;
    queue_.Discard();
  }

  void OnWriteDone(bool ok) override {
    MutexLock lock(mutex_);
    queue_.Written();
    if (!ok) Close();
    Pump();
  }

  void OnReadDone(bool ok) override {
    if (ok) {
      callbacks_.on_message(std::move(response_));
      response_.Clear();
      this->StartRead(&response_);
      return;
    }
    {
      MutexLock lock(mutex_);
      Close();
    }
    this->RemoveHold();
  }

  void OnDone(const grpc::Status& status) override {
    const std::shared_ptr<BidiCall> self = std::move(self_);
    absl::Status result = FromGrpc(status);
    {
      MutexLock lock(mutex_);
      if (overflowed_ && absl::IsCancelled(result)) {
        result = absl::ResourceExhaustedError(absl::StrCat(
            "the server reads too slowly: ", queue_.capacity(), " messages wait for it"));
      }
    }
    callbacks_.on_done(std::move(result));
    callbacks_ = {};
  }

  grpc::ClientContext context_;
  Mutex mutex_;
  WriteQueue<Request> queue_ ABSL_GUARDED_BY(mutex_);
  bool started_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;  // nothing is written any more
  bool half_close_ ABSL_GUARDED_BY(mutex_) = false;
  bool half_close_sent_ ABSL_GUARDED_BY(mutex_) = false;
  bool overflowed_ ABSL_GUARDED_BY(mutex_) = false;
  Callbacks callbacks_;
  Response response_;
  std::shared_ptr<BidiCall> self_;
};

}  // namespace baton::rpc
