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
  // The second fails, the others say a word and go on.
  void FailTheSecond() {
    for (const auto& worker : decode_) {
      worker->SetBehaviour([](const v1::DecodeGenerateRequest& request) {
        if (request.sampling().seed() == 8) {
          return Plan{.status = absl::InvalidArgumentError("no such luck")};
        }
        Plan plan{.messages = Answer(request, Tokens().Encode("The"))};
        plan.messages.back().clear_finish_reason();
        plan.hang = true;
        return plan;
      });
    }
  }
  // By the next word of their workers, and they are not tried again.
  void EndTheOthers() {
    for (const auto& worker : decode_) worker->Release();
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
  const std::string body = client.Read().body;
  std::map<int, std::string> texts;
  std::map<int, int> ends;
  Json last;
  for (size_t begin = 0; begin < body.size();) {
    const size_t end = body.find("\n\n", begin);
    const std::string data = body.substr(begin + 6, end - begin - 6);
    begin = end + 2;
    if (data == "[DONE]") {
      EXPECT_EQ(begin, body.size());
      break;
    }
    last = Json::parse(data);
    for (const Json& choice : last.at("choices")) {
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
  EXPECT_EQ(last.at("usage").at("completion_tokens"), TokensOfAll());
}

TEST_F(ChoicesTest, EachOfAChatBeginsWithItsRole) {
  AnswerAlways("green.");
  StartReady();
  Json request = Chat("x", /*stream=*/true);
  request["n"] = 2;
  HttpClient client(router_->ports().http);
  client.SendRequest("POST", kChatPath, request.dump());
  const std::string body = client.Read().body;
  for (const char* index : {"0", "1"}) {
    const std::string choice = absl::StrCat(R"("index":)", index, R"(,"delta":{)");
    EXPECT_EQ(body.find(choice), body.find(absl::StrCat(choice, R"("role":"assistant")")));
  }
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
  EndTheOthers();
}

TEST_F(ChoicesTest, OneThatFailsEndsTheStream) {
  FailTheSecond();
  StartReady();
  HttpClient client(router_->ports().http);
  client.SendRequest("POST", kCompletionPath, Three(/*stream=*/true).dump());
  const HttpClient::Response response = client.Read();
  EXPECT_EQ(response.status, 200);
  EXPECT_THAT(response.body, AllOf(HasSubstr("no such luck"), Not(HasSubstr("[DONE]"))));
  EndTheOthers();
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
  EXPECT_EQ(Post(kCompletionPath, Three(/*stream=*/false)).status, 503);
  EXPECT_EQ(DecodeCalls(), 0u);
  EXPECT_EQ(Post(kCompletionPath, {{"prompt", "x"}, {"n", 2}}).status, 200);
}

}  // namespace
}  // namespace baton::router
