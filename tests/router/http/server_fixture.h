#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/mutex.h"
#include "gtest/gtest.h"
#include "prometheus/gauge.h"
#include "router/http/server.h"
#include "tests/testing/status_matchers.h"

namespace baton::router {

// Answers "/echo" with the request's body at once and keeps the replies to "/hold" for the test.
class TestHandler final : public HttpHandler {
 public:
  void Handle(HttpRequest request, std::shared_ptr<HttpReply> reply) override {
    if (request.path != "/hold") {
      reply->Respond({.body = request.method + " " + request.path + " " + request.body});
      return;
    }
    reply->OnDisconnect([this] {
      MutexLock lock(mutex_);
      ++disconnected_;
      changed_.NotifyAll();
    });
    MutexLock lock(mutex_);
    held_.push_back(std::move(reply));
    changed_.NotifyAll();
  }

  std::optional<HttpResponse> RefuseHead(const HttpRequest& head) override {
    if (head.path != "/closed") return std::nullopt;
    return HttpResponse{.status = 401, .body = head.authorization};
  }
  HttpResponse Refuse(const HttpRequest& head, int status, const std::string& message) override {
    return {.status = status, .headers = {{"x-head-id", head.request_id}}, .body = message};
  }

  std::shared_ptr<HttpReply> TakeHeld() {
    MutexLock lock(mutex_);
    while (held_.empty()) {
      if (!changed_.WaitFor(mutex_, std::chrono::seconds(10))) return nullptr;
    }
    std::shared_ptr<HttpReply> reply = held_.front();
    held_.erase(held_.begin());
    return reply;
  }

  int disconnected() {
    MutexLock lock(mutex_);
    return disconnected_;
  }
  bool WaitForDisconnect() {
    MutexLock lock(mutex_);
    while (disconnected_ == 0) {
      if (!changed_.WaitFor(mutex_, std::chrono::seconds(10))) return false;
    }
    return true;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::vector<std::shared_ptr<HttpReply>> held_ ABSL_GUARDED_BY(mutex_);
  int disconnected_ ABSL_GUARDED_BY(mutex_) = 0;
};

class HttpServerTest : public ::testing::Test {
 protected:
  void Start(HttpServerOptions options = {}) {
    options.listen = "127.0.0.1:0";
    BATON_ASSERT_OK_AND_ASSIGN(server_, HttpServer::Start(options, &handler_, &connections_));
  }
  int port() const { return server_->port(); }

  TestHandler handler_;
  prometheus::Gauge connections_;
  std::unique_ptr<HttpServer> server_;
};

}  // namespace baton::router
