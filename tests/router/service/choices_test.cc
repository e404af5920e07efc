#include <atomic>
#include <map>
#include <set>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/router/service/router_fixture.h"

// Several answers to one prompt.

namespace baton::router {
namespace {

using baton::testing::Answer;
using baton::testing::HttpClient;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class ChoicesTest : public RouterFixture {
 protected:
  static Json Three(bool stream) {
    return {{"prompt", "The grass"}, {"n", 3}, {"seed", 7}, {"stream", stream}};
  }
  static const char* TextOf(uint64_t seed) {
    return seed == 7 ? " is green." : seed == 8 ? " is tall and green." : ".";
  }
  // The text depends on the seed.
  void AnswerBySeed() {
    for (const auto& worker : decode_) {
      worker->SetBehaviour([](const v1::DecodeGenerateRequest& request) {
        return Plan{.messages =
                        Answer(request, Tokens().Encode(TextOf(request.sampling().seed())))};
      });
    }
  }
  // All say a word, so that a stream has begun; then the second fails and the others go on.
  void FailTheSecond() {
    for (const auto& worker : decode_) {
      worker->SetBehaviour([](const v1::DecodeGenerateRequest& request) {
        Plan plan{.messages = Answer(request, Tokens().Encode("The"))};
        plan.messages.back().clear_finish_reason();
        plan.hang = request.sampling().seed() != 8;
        if (!plan.hang) plan.status = absl::InvalidArgumentError("no such luck");
        return plan;
      });
    }
  }
  // Though their workers never say another word; and they are not tried again.
  void ExpectTheOthersEnd() {
    EXPECT_TRUE(router_->Drain(std::chrono::seconds(5)));
    EXPECT_LE(DecodeCalls(), 3u);
  }
  static size_t TokensOfAll() {
    size_t tokens = 0;
    for (const uint64_t seed : {7, 8, 9}) tokens += Tokens().Encode(TextOf(seed)).size();
    return tokens;
  }
};

TEST_F(ChoicesTest, EachHasItsOwnSeedAndThePromptCountsOnce) {
  AnswerBySeed();
  StartReady();
  const HttpClient::Response response = Post(kCompletionPath, Three(/*stream=*/false));
  ASSERT_EQ(response.status, 200) << response.body;
  const Json body = Json::parse(response.body);
  ASSERT_EQ(body.at("choices").size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(body.at("choices").at(i).at("index"), i);
    EXPECT_EQ(body.at("choices").at(i).at("text"), TextOf(7 + i));
  }
  EXPECT_EQ(body.at("usage").at("prompt_tokens"), Tokens().Encode("The grass").size());
  EXPECT_EQ(body.at("usage").at("completion_tokens"), TokensOfAll());
  std::set<uint64_t> requests;
  for (const auto& worker : decode_) {
    for (const v1::DecodeGenerateRequest& request : worker->requests()) {
      requests.insert(request.attempt().request().low());
    }
  }
  EXPECT_EQ(requests.size(), 3u);
  EXPECT_TRUE(router_->Drain(std::chrono::seconds(5)));
}

TEST_F(ChoicesTest, ChunksOfAStreamSayWhichTheyBelongTo) {
  AnswerBySeed();
  StartReady();
  Json request = Three(/*stream=*/true);
  request["stream_options"] = {{"include_usage", true}};
  HttpClient client(router_->ports().http);
  client.SendRequest("POST", kCompletionPath, request.dump());
  const std::vector<Json> chunks = Chunks(client.Read().body);
  std::map<int, std::string> texts;
  std::map<int, int> ends;
  for (const Json& chunk : chunks) {
    for (const Json& choice : chunk.at("choices")) {
      const int index = choice.at("index");
      EXPECT_EQ(ends[index], 0);
      texts[index] += choice.at("text").get<std::string>();
      ends[index] += choice.at("finish_reason").is_null() ? 0 : 1;
    }
  }
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(texts[i], TextOf(7 + i));
    EXPECT_EQ(ends[i], 1);
  }
  EXPECT_EQ(chunks.back().at("usage").at("completion_tokens"), TokensOfAll());
}

TEST_F(ChoicesTest, EachOfAChatBeginsWithItsRole) {
  AnswerAlways("green.");
  StartReady();
  Json request = Chat("x", /*stream=*/true);
  request["n"] = 2;
  HttpClient client(router_->ports().http);
  client.SendRequest("POST", kChatPath, request.dump());
  const HttpClient::Response response = client.Read();
  ASSERT_EQ(response.status, 200) << response.body;
  std::map<int, Json> firsts;
  for (const Json& chunk : Chunks(response.body)) {
    const Json& choice = chunk.at("choices").at(0);
    firsts.emplace(choice.at("index"), choice.at("delta"));
  }
  ASSERT_EQ(firsts.size(), 2u);
  for (const auto& [index, delta] : firsts) EXPECT_EQ(delta.at("role"), "assistant") << index;
}

TEST_F(ChoicesTest, OthersWaitForTheFirstTokenOfTheFirst) {
  for (const auto& worker : decode_) {
    worker->SetBehaviour([](const v1::DecodeGenerateRequest& request) {
      if (request.sampling().seed() == 7) return Plan{.messages = {}, .status = {}, .hang = true};
      return Plan{.messages = Answer(request, Tokens().Encode("."))};
    });
  }
  StartReady();
  HttpClient client(router_->ports().http);
  client.SendRequest("POST", kCompletionPath, Three(/*stream=*/false).dump());
  ASSERT_TRUE(decode_[0]->WaitForRequests(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(DecodeCalls(), 1u);
  client.Close();  // which ends those that have not begun, too
  EXPECT_TRUE(decode_[0]->WaitForCancelled(1));
  EXPECT_TRUE(router_->Drain(std::chrono::seconds(5)));
  EXPECT_EQ(DecodeCalls(), 1u);
}

TEST_F(ChoicesTest, OneThatFailsFailsTheRequest) {
  FailTheSecond();
  StartReady();
  const HttpClient::Response response = Post(kCompletionPath, Three(/*stream=*/false));
  EXPECT_EQ(response.status, 400);
  EXPECT_THAT(response.body, HasSubstr("no such luck"));
  ExpectTheOthersEnd();
}

TEST_F(ChoicesTest, OneThatFailsEndsTheStream) {
  FailTheSecond();
  StartReady();
  HttpClient client(router_->ports().http);
  client.SendRequest("POST", kCompletionPath, Three(/*stream=*/true).dump());
  const HttpClient::Response response = client.Read();
  EXPECT_EQ(response.status, 200);
  EXPECT_THAT(response.body, AllOf(HasSubstr("no such luck"), Not(HasSubstr("[DONE]"))));
  ExpectTheOthersEnd();
}

TEST_F(ChoicesTest, AFirstThatFailsLeavesNoneBehind) {
  for (const auto& worker : decode_) {
    worker->SetBehaviour([](const v1::DecodeGenerateRequest&) {
      return Plan{.status = absl::InvalidArgumentError("no such luck")};
    });
  }
  StartReady();
  EXPECT_EQ(Post(kCompletionPath, Three(/*stream=*/false)).status, 400);
  EXPECT_EQ(DecodeCalls(), 1u);
  EXPECT_TRUE(router_->Drain(std::chrono::seconds(5)));
}

TEST_F(ChoicesTest, AllAreAdmittedOrNone) {
  AnswerBySeed();
  RouterConfig config = Config();
  config.max_concurrent_requests = 2;
  StartReady(config);
  const Json two = {{"prompt", "x"}, {"n", 2}};
  EXPECT_EQ(Post(kCompletionPath, two).status, 200);
  for (const auto& worker : decode_) {
    worker->SetBehaviour([](const v1::DecodeGenerateRequest&) { return Plan{.hang = true}; });
  }
  HttpClient busy(router_->ports().http);
  busy.SendRequest("POST", kCompletionPath, R"({"prompt":"x"})");
  while (DecodeCalls() < 3) std::this_thread::yield();
  EXPECT_EQ(Post(kCompletionPath, two).status, 503);
  const HttpClient::Response never = Post(kCompletionPath, Three(/*stream=*/false));
  EXPECT_EQ(never.status, 400);
  EXPECT_THAT(never.body, HasSubstr("n is 3"));
  EXPECT_EQ(DecodeCalls(), 3u);
}

}  // namespace
}  // namespace baton::router
