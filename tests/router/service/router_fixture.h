#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "router/router.h"
#include "router/tokenizer/tokenizer.h"
#include "tests/testing/fake_worker.h"
#include "tests/testing/http_client.h"
#include "tests/testing/status_matchers.h"

namespace baton::router {

inline constexpr const char* kChatPath = "/v1/chat/completions";
inline constexpr const char* kCompletionPath = "/v1/completions";

// A router over real sockets, in front of two prefill and two decode workers that a test scripts.
class RouterFixture : public ::testing::Test {
 protected:
  using Json = nlohmann::json;
  using Plan = baton::testing::FakeWorker::Plan;

  static const Tokenizer& Tokens() {
    static const Tokenizer* tokenizer =
        new Tokenizer(*Tokenizer::Load(BATON_SOURCE_DIR "/models/needle-17m/tokenizer.json"));
    return *tokenizer;
  }

  RouterFixture() {
    for (int i = 0; i < 2; ++i) {
      prefill_.push_back(std::make_unique<baton::testing::FakeWorker>(v1::WORKER_ROLE_PREFILL));
      decode_.push_back(std::make_unique<baton::testing::FakeWorker>(v1::WORKER_ROLE_DECODE));
    }
  }

  RouterConfig Config() const {
    RouterConfig config;
    config.listen = config.grpc_listen = config.metrics_listen = "127.0.0.1:0";
    config.model_dir = BATON_SOURCE_DIR "/models/needle-17m";
    config.policy = "round-robin";
    config.request_timeout = std::chrono::seconds(30);
    for (const auto& worker : prefill_) config.prefill_workers.push_back(worker->address());
    for (const auto& worker : decode_) config.decode_workers.push_back(worker->address());
    return config;
  }

  void Start() { Start(Config()); }
  void Start(const RouterConfig& config) {
    BATON_ASSERT_OK_AND_ASSIGN(router_, Router::Start(config));
  }

  // Waits until /health shows as many ready workers.
  bool WaitForReady(int count) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (std::chrono::steady_clock::now() < deadline) {
      int ready = 0;
      const Json health = Json::parse(Get("/health").body);
      for (const Json& worker : health.at("workers")) {
        ready += worker.at("ready").get<bool>() ? 1 : 0;
      }
      if (ready == count) return true;
    }
    return false;
  }
  void StartReady() { StartReady(Config()); }
  void StartReady(const RouterConfig& config) {
    Start(config);
    ASSERT_TRUE(WaitForReady(4));
  }

  // All decode workers answer with the tokens of `text`.
  void AnswerAlways(const std::string& text) {
    for (const auto& worker : decode_) AnswerOf(*worker, text);
  }
  static void AnswerOf(baton::testing::FakeWorker& worker, const std::string& text) {
    worker.SetBehaviour([text](const v1::DecodeGenerateRequest& request) {
      return Plan{.messages = baton::testing::Answer(request, Tokens().Encode(text))};
    });
  }
  // The first call to any decode worker gets `plan`, whose messages say `text` without an end; the
  // others answer with `then`.
  void FailFirst(const std::string& text, Plan plan, const std::string& then) {
    auto calls = std::make_shared<std::atomic<int>>(0);
    for (const auto& worker : decode_) {
      worker->SetBehaviour([=](const v1::DecodeGenerateRequest& request) {
        if (calls->fetch_add(1) > 0) {
          return Plan{.messages = baton::testing::Answer(request, Tokens().Encode(then))};
        }
        Plan first = plan;
        if (!text.empty()) {
          first.messages = baton::testing::Answer(request, Tokens().Encode(text));
          first.messages.back().clear_finish_reason();
        }
        return first;
      });
    }
  }
  size_t DecodeCalls() const {
    return decode_[0]->requests().size() + decode_[1]->requests().size();
  }

  baton::testing::HttpClient::Response Get(const std::string& path) {
    return baton::testing::Fetch(router_->ports().http, "GET", path);
  }
  baton::testing::HttpClient::Response Post(const std::string& path, const Json& body) {
    return baton::testing::Fetch(router_->ports().http, "POST", path, body.dump());
  }
  static Json Chat(const std::string& text, bool stream = false) {
    return {{"model", "needle-17m"},
            {"messages", Json::array({{{"role", "user"}, {"content", text}}})},
            {"stream", stream}};
  }
  // The chunks of a stream that ends as one should.
  static std::vector<Json> Chunks(const std::string& stream) {
    std::vector<Json> chunks;
    const std::vector<std::string> events = absl::StrSplit(stream, "\n\n", absl::SkipEmpty());
    for (const std::string& event : events) {
      EXPECT_THAT(event, ::testing::StartsWith("data: "));
      if (event == "data: [DONE]") break;
      chunks.push_back(Json::parse(event.substr(6)));
    }
    EXPECT_THAT(stream, ::testing::EndsWith("}\n\ndata: [DONE]\n\n"));
    return chunks;
  }
  static Json ErrorOf(const baton::testing::HttpClient::Response& response) {
    return Json::parse(response.body).at("error");
  }

  std::vector<std::unique_ptr<baton::testing::FakeWorker>> prefill_;
  std::vector<std::unique_ptr<baton::testing::FakeWorker>> decode_;
  std::unique_ptr<Router> router_;
};

}  // namespace baton::router
