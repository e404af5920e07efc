#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "baton/v1/decode.grpc.pb.h"
#include "baton/v1/prefill.grpc.pb.h"
#include "baton/v1/worker.grpc.pb.h"
#include "common/mutex.h"
#include "common/rpc/server.h"
#include "gtest/gtest.h"

// Services whose methods are what a test assigns, and how tests wait for callbacks.

namespace baton::rpc {

struct FakeDecode final : v1::Decode::CallbackService {
  using Reactor = grpc::ServerWriteReactor<v1::DecodeGenerateResponse>;
  std::function<Reactor*(grpc::CallbackServerContext*, const v1::DecodeGenerateRequest*)> generate;

  Reactor* Generate(grpc::CallbackServerContext* context,
                    const v1::DecodeGenerateRequest* request) override {
    return generate(context, request);
  }
};

struct FakePrefill final : v1::Prefill::CallbackService {
  using Reactor = grpc::ServerBidiReactor<v1::PrefillRunRequest, v1::PrefillRunResponse>;
  std::function<Reactor*(grpc::CallbackServerContext*)> run;

  Reactor* Run(grpc::CallbackServerContext* context) override { return run(context); }
};

struct FakeWorkerControl final : v1::WorkerControl::CallbackService {
  std::function<void(grpc::CallbackServerContext*, v1::GetInfoResponse*, grpc::ServerUnaryReactor*)>
      get_info;
  std::function<grpc::Status(const v1::HandshakeRequest*, v1::HandshakeResponse*)> handshake;

  grpc::ServerUnaryReactor* GetInfo(grpc::CallbackServerContext* context, const v1::GetInfoRequest*,
                                    v1::GetInfoResponse* response) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    get_info(context, response, reactor);
    return reactor;
  }
  grpc::ServerUnaryReactor* Handshake(grpc::CallbackServerContext* context,
                                      const v1::HandshakeRequest* request,
                                      v1::HandshakeResponse* response) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(handshake(request, response));
    return reactor;
  }
};

// What callbacks report, one by one. Next fails the test when nothing comes: a bound on a hang, not
// a measurement.
template <typename T>
class Mailbox {
 public:
  void Put(T item) {
    MutexLock lock(mutex_);
    items_.push_back(std::move(item));
    came_.NotifyOne();
  }
  T Next() {
    MutexLock lock(mutex_);
    while (items_.empty() && came_.WaitFor(mutex_, std::chrono::seconds(60))) {
    }
    if (items_.empty()) {
      ADD_FAILURE() << "nothing came";
      return T();
    }
    T item = std::move(items_.front());
    items_.pop_front();
    return item;
  }
  bool empty() const {
    MutexLock lock(mutex_);
    return items_.empty();
  }

 private:
  mutable Mutex mutex_;
  CondVar came_;
  std::deque<T> items_ ABSL_GUARDED_BY(mutex_);
};

inline std::unique_ptr<GrpcServer> StartServer(std::vector<grpc::Service*> services) {
  auto server = GrpcServer::Start({.listen = "127.0.0.1:0", .services = std::move(services)});
  EXPECT_TRUE(server.ok()) << server.status();
  return *std::move(server);
}

inline std::string AddressOf(const GrpcServer& server) {
  return absl::StrCat("127.0.0.1:", server.port());
}

}  // namespace baton::rpc
