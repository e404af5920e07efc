#include <atomic>
#include <string>
#include <vector>

#include "baton/v1/inference.grpc.pb.h"
#include "common/rpc/channel.h"
#include "common/rpc/status.h"
#include "tests/router/service/router_fixture.h"

// Log-probabilities from a decode worker's messages to a client.

namespace baton::router {
namespace {

using baton::testing::Answer;
using baton::testing::HttpClient;
using baton::testing::StatusIs;
using ::testing::HasSubstr;

constexpr const char* kText = "The grass is green. The sky is blue.";

class LogprobsServiceTest : public RouterFixture {
 protected:
  static Json Completion(bool stream) {
    return {{"prompt", "x"}, {"max_tokens", 100}, {"logprobs", 2}, {"stream", stream}};
  }
  static Json ChatAsking(bool stream) {
    Json chat = Chat("x", stream);
    chat["logprobs"] = true;
    chat["top_logprobs"] = 2;
    return chat;
  }
  // The lists of a choice's logprobs, put together over the chunks of a stream.
  Json Streamed(const std::string& path, const Json& request) {
    HttpClient client(router_->ports().http);
    client.SendRequest("POST", path, request.dump());
    Json all = Json::object();
    for (const Json& chunk : Chunks(client.Read().body)) {
      const Json& logprobs = chunk.at("choices").at(0).at("logprobs");
      for (const auto& [member, list] : logprobs.items()) {
        Json& sum = all.emplace(member, list.is_array() ? Json::array() : list).first.value();
        if (list.is_array()) sum.insert(sum.end(), list.begin(), list.end());
      }
    }
    return all;
  }
  Json Whole(const std::string& path, const Json& request) {
    const HttpClient::Response response = Post(path, request);
    EXPECT_EQ(response.status, 200) << response.body;
    return Json::parse(response.body).at("choices").at(0).at("logprobs");
  }
};

TEST_F(LogprobsServiceTest, StreamsHoldWhatWholeAnswersHold) {
  AnswerAlways(kText);
  StartReady();
  const Json chat = Whole(kChatPath, ChatAsking(false));
  EXPECT_EQ(Streamed(kChatPath, ChatAsking(true)), chat);
  std::string text;
  for (const Json& token : chat.at("content")) {
    text += token.at("token").get<std::string>();
    EXPECT_EQ(token.at("logprob"), -0.5);
    ASSERT_EQ(token.at("top_logprobs").size(), 2u);
    EXPECT_EQ(token.at("top_logprobs").at(0).at("token"), token.at("token"));
    EXPECT_EQ(token.at("top_logprobs").at(1).at("logprob"), -1.5);
  }
  EXPECT_EQ(text, kText);

  const Json completion = Whole(kCompletionPath, Completion(false));
  EXPECT_EQ(Streamed(kCompletionPath, Completion(true)), completion);
  size_t offset = 0;
  for (size_t i = 0; i < completion.at("tokens").size(); ++i) {
    const auto token = completion.at("tokens").at(i).get<std::string>();
    EXPECT_EQ(completion.at("text_offset").at(i), offset);
    EXPECT_EQ(completion.at("top_logprobs").at(i).at(token), -0.5);
    offset += token.size();
  }
  EXPECT_EQ(offset, std::string(kText).size());
}

TEST_F(LogprobsServiceTest, NobodyIsAskedForWhatTheClientDoesNotWant) {
  AnswerAlways(kText);
  StartReady();
  EXPECT_TRUE(Whole(kChatPath, Chat("x")).is_null());
  for (const auto& worker : decode_) {
    for (const v1::DecodeGenerateRequest& request : worker->requests()) {
      EXPECT_FALSE(request.sampling().has_top_logprobs());
    }
  }
}

TEST_F(LogprobsServiceTest, AStopStringCutsThemWithTheText) {
  AnswerAlways(kText);
  StartReady();
  Json request = ChatAsking(false);
  request["stop"] = " The sky";
  const Json logprobs = Whole(kChatPath, request);
  std::string text;
  for (const Json& token : logprobs.at("content")) {
    text += token.at("token").get<std::string>();
  }
  EXPECT_EQ(text, "The grass is green.");
}

TEST_F(LogprobsServiceTest, AWorkerThatGivesNoneIsLeftForAnother) {
  auto calls = std::make_shared<std::atomic<int>>(0);
  for (const auto& worker : decode_) {
    worker->SetBehaviour([=](const v1::DecodeGenerateRequest& request) {
      v1::DecodeGenerateRequest heard = request;
      if (calls->fetch_add(1) == 0) heard.mutable_sampling()->clear_top_logprobs();
      return Plan{.messages = Answer(heard, Tokens().Encode(kText)), .hang = calls->load() == 1};
    });
  }
  StartReady();
  EXPECT_EQ(Whole(kChatPath, ChatAsking(false)).at("content").size(),
            Tokens().Encode(kText).size());
  EXPECT_EQ(DecodeCalls(), 2u);
}

TEST_F(LogprobsServiceTest, WorkersThatGiveNoneFailTheRequest) {
  for (const auto& worker : decode_) {
    worker->SetBehaviour([](const v1::DecodeGenerateRequest& request) {
      v1::DecodeGenerateRequest heard = request;
      heard.mutable_sampling()->clear_top_logprobs();
      return Plan{.messages = Answer(heard, Tokens().Encode(kText))};
    });
  }
  StartReady();
  EXPECT_EQ(Post(kChatPath, ChatAsking(false)).status, 500);
}

TEST_F(LogprobsServiceTest, GrpcGivesThemWithTheTokens) {
  AnswerAlways(kText);
  StartReady();
  const auto stub = v1::Inference::NewStub(rpc::MakeChannel(
      "127.0.0.1:" + std::to_string(router_->ports().grpc), rpc::ChannelKind::kControl));
  const auto ask = [&](uint32_t top) {
    v1::GenerateRequest request;
    request.set_prompt("x");
    request.mutable_sampling()->set_top_logprobs(top);
    grpc::ClientContext context;
    const auto reader = stub->Generate(&context, request);
    v1::GenerateResponse response;
    std::vector<int32_t> tokens;
    while (reader->Read(&response)) {
      for (const v1::TokenLogprobs& logprobs : response.logprobs()) {
        EXPECT_EQ(static_cast<uint32_t>(logprobs.top_size()), top);
        EXPECT_EQ(logprobs.chosen().logprob(), -0.5f);
        tokens.push_back(logprobs.chosen().token_id());
      }
    }
    const absl::Status status = rpc::FromGrpc(reader->Finish());
    return status.ok() ? absl::StatusOr<std::vector<int32_t>>(tokens) : status;
  };
  EXPECT_EQ(*ask(0), Tokens().Encode(kText));
  EXPECT_EQ(*ask(20), Tokens().Encode(kText));
  EXPECT_THAT(ask(21), StatusIs(absl::StatusCode::kInvalidArgument,
                                HasSubstr("sampling.top_logprobs is 21")));
}

}  // namespace
}  // namespace baton::router
