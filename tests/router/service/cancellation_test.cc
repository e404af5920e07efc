#include <thread>

#include "tests/router/service/router_fixture.h"

// Requests that end before their workers do.

namespace baton::router {
namespace {

using baton::testing::Answer;
using baton::testing::HttpClient;
using std::chrono::milliseconds;
using std::chrono::seconds;

using CancellationTest = RouterFixture;

TEST_F(CancellationTest, AClientThatLeavesBeforeTheFirstTokenCancelsTheWorker) {
  decode_.pop_back();
  decode_[0]->SetBehaviour([](const v1::DecodeGenerateRequest&) {
    return Plan{.messages = {}, .status = {}, .hang = true};
  });
  Start();
  ASSERT_TRUE(WaitForReady(3));
  HttpClient client(router_->ports().http);
  client.SendRequest("POST", kChatPath, Chat("x").dump());
  ASSERT_TRUE(decode_[0]->WaitForRequests(1));
  client.Close();
  EXPECT_TRUE(decode_[0]->WaitForCancelled(1));
}

TEST_F(CancellationTest, AClientThatLeavesInTheMiddleCancelsTheWorker) {
  decode_.pop_back();
  decode_[0]->SetBehaviour([](const v1::DecodeGenerateRequest& request) {
    Plan plan{.messages = Answer(request, Tokens().Encode("The grass")), .status = {}};
    plan.messages.back().clear_finish_reason();
    plan.hang = true;
    return plan;
  });
  Start();
  ASSERT_TRUE(WaitForReady(3));
  HttpClient client(router_->ports().http);
  client.SendRequest("POST", kChatPath, Chat("x", /*stream=*/true).dump());
  EXPECT_EQ(client.ReadHead().status, 200);
  EXPECT_NE(client.ReadUntil("\"content\":\""), "");
  client.Close();
  EXPECT_TRUE(decode_[0]->WaitForCancelled(1));
}

TEST_F(CancellationTest, AStopStringCancelsTheWorker) {
  decode_.pop_back();
  decode_[0]->SetBehaviour([](const v1::DecodeGenerateRequest& request) {
    Plan plan{.messages = Answer(request, Tokens().Encode("red green blue")), .status = {}};
    plan.messages.back().clear_finish_reason();
    plan.hang = true;
    return plan;
  });
  Start();
  ASSERT_TRUE(WaitForReady(3));
  Json request = Chat("x");
  request["stop"] = " blue";
  const HttpClient::Response response = Post(kChatPath, request);
  ASSERT_EQ(response.status, 200);
  EXPECT_EQ(Json::parse(response.body).at("choices").at(0).at("message").at("content"),
            "red green");
  EXPECT_TRUE(decode_[0]->WaitForCancelled(1));
}

TEST_F(CancellationTest, DrainingRefusesNewRequestsAndFinishesRunningOnes) {
  decode_.pop_back();
  decode_[0]->SetBehaviour([](const v1::DecodeGenerateRequest& request) {
    Plan plan{.messages = Answer(request, Tokens().Encode("green.")), .status = {}};
    plan.hang = true;  // the last token came, the end has not
    return plan;
  });
  Start();
  ASSERT_TRUE(WaitForReady(3));
  HttpClient running(router_->ports().http);
  running.SendRequest("POST", kChatPath, Chat("x").dump());
  ASSERT_TRUE(decode_[0]->WaitForRequests(1));
  bool drained = false;
  std::jthread drain([&] { drained = router_->Drain(seconds(20)); });
  while (Get("/health").status == 200) {
  }
  EXPECT_EQ(Get("/health").status, 503);
  const HttpClient::Response refused = Post(kChatPath, Chat("x"));
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.headers.at("retry-after"), "1");
  decode_[0]->Release();
  EXPECT_EQ(running.Read().status, 200);
  drain.join();
  EXPECT_TRUE(drained);
}

TEST_F(CancellationTest, DrainingCancelsWhatTakesTooLong) {
  for (const auto& worker : decode_) {
    worker->SetBehaviour([](const v1::DecodeGenerateRequest&) {
      return Plan{.messages = {}, .status = {}, .hang = true};
    });
  }
  StartReady();
  HttpClient client(router_->ports().http);
  client.SendRequest("POST", kChatPath, Chat("x").dump());
  ASSERT_TRUE(decode_[0]->WaitForRequests(1));
  EXPECT_FALSE(router_->Drain(milliseconds(10)));
  EXPECT_EQ(client.Read().status, 503);
  EXPECT_TRUE(decode_[0]->WaitForCancelled(1));
}

}  // namespace
}  // namespace baton::router
