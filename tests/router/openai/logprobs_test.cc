#include "router/openai/logprobs.h"

#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "router/openai/response.h"

namespace baton::router {
namespace {

using Json = nlohmann::json;

class LogprobsTest : public ::testing::Test {
 protected:
  static const Tokenizer& Tokens() {
    static const Tokenizer* tokenizer =
        new Tokenizer(*Tokenizer::Load(BATON_SOURCE_DIR "/models/needle-17m/tokenizer.json"));
    return *tokenizer;
  }
  static int32_t Id(std::string_view bytes) {
    for (int32_t id = 0; id < Tokens().vocab_size(); ++id) {
      if (Tokens().TokenBytes(id) == bytes) return id;
    }
    ADD_FAILURE() << bytes << " is no token";
    return -1;
  }
  static AnswerToken Token(std::string_view bytes, float logprob,
                           std::vector<TokenLogprob> top = {}, bool is_reasoning = false) {
    return {.logprobs = {.chosen = {.token = Id(bytes), .logprob = logprob}, .top = std::move(top)},
            .text_offset = 7,
            .is_reasoning = is_reasoning};
  }
  static ResponseHeader Header(Endpoint endpoint) {
    return {.endpoint = endpoint, .id = "x", .model = "m", .logprobs_tokenizer = &Tokens()};
  }
  static Json LogprobsOf(Endpoint endpoint, const GenerationDelta& all) {
    const FinishedChoice choice{.all = all, .end = {}};
    return Json::parse(CompleteBody(Header(endpoint), {&choice, 1}))
        .at("choices")
        .at(0)
        .at("logprobs");
  }
  // The choices of a stream's events.
  static std::vector<Json> Choices(const std::string& events) {
    std::vector<Json> choices;
    for (size_t begin = 0; begin < events.size();) {
      const size_t end = events.find("\n\n", begin);
      choices.push_back(Json::parse(events.substr(begin + 6, end - begin - 6)).at("choices").at(0));
      begin = end + 2;
    }
    return choices;
  }
};

TEST_F(LogprobsTest, AChatListsTokensWithBytesAndTheLikeliest) {
  const std::vector<AnswerToken> tokens = {
      Token("a", -0.5f, {{.token = Id("a"), .logprob = -0.5f}, {.token = Id("b"), .logprob = -2}}),
      Token("\xF0", -1)};
  EXPECT_EQ(Json(ChatLogprobs(tokens, Tokens())), Json::parse(R"({"refusal": null, "content": [
      {"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": [
          {"token": "a", "logprob": -0.5, "bytes": [97]},
          {"token": "b", "logprob": -2.0, "bytes": [98]}]},
      {"token": "\\xf0", "logprob": -1.0, "bytes": [240], "top_logprobs": []}]})"));
}

TEST_F(LogprobsTest, ReasoningHasAListOfItsOwn) {
  const std::vector<AnswerToken> tokens = {Token("a", -1, {}, /*is_reasoning=*/true),
                                           Token("b", -2)};
  const Json logprobs = ChatLogprobs(tokens, Tokens());
  EXPECT_EQ(logprobs.at("reasoning_content").at(0).at("token"), "a");
  EXPECT_EQ(logprobs.at("content").at(0).at("token"), "b");
  EXPECT_EQ(logprobs.at("content").size(), 1u);
}

TEST_F(LogprobsTest, ACompletionHasFourListsAndTheChosenTokenAmongItsTop) {
  const std::vector<AnswerToken> tokens = {
      Token("a", -3, {{.token = Id("b"), .logprob = -0.5f}}),
      Token("\xF0", -1, {{.token = Id("\xF0"), .logprob = -1}})};
  EXPECT_EQ(Json(CompletionLogprobs(tokens, Tokens())), Json::parse(R"({
      "tokens": ["a", "bytes:\\xf0"], "token_logprobs": [-3.0, -1.0],
      "top_logprobs": [{"b": -0.5, "a": -3.0}, {"bytes:\\xf0": -1.0}], "text_offset": [7, 7]})"));
}

TEST_F(LogprobsTest, InfinityIsANumberThatJsonHas) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<AnswerToken> tokens = {
      Token("a", 0, {{.token = Id("b"), .logprob = -infinity}})};
  EXPECT_EQ(ChatLogprobs(tokens, Tokens())["content"][0]["top_logprobs"][0]["logprob"], -9999);
  EXPECT_EQ(CompletionLogprobs(tokens, Tokens())["top_logprobs"][0]["b"], -9999);
}

TEST_F(LogprobsTest, WholeAnswersHoldAll) {
  GenerationDelta all;
  all.text = "a";
  all.answer_tokens = {Token("a", -1)};
  for (const Endpoint endpoint : {Endpoint::kChatCompletions, Endpoint::kCompletions}) {
    const char* list = endpoint == Endpoint::kCompletions ? "tokens" : "content";
    EXPECT_EQ(LogprobsOf(endpoint, all).at(list).size(), 1u);
    // An empty answer has empty lists: it was asked for.
    EXPECT_TRUE(LogprobsOf(endpoint, {}).at(list).empty());
  }
}

TEST_F(LogprobsTest, StreamsGiveThemWithTheFirstChunkOfADelta) {
  GenerationDelta delta;
  delta.text = "b";
  delta.reasoning = "a";
  delta.answer_tokens = {Token("a", -1, {}, /*is_reasoning=*/true), Token("b", -2)};
  const std::vector<Json> chat = Choices(DeltaEvents(Header(Endpoint::kChatCompletions), delta));
  ASSERT_EQ(chat.size(), 2u);
  EXPECT_EQ(chat[0].at("logprobs").at("reasoning_content").size(), 1u);
  EXPECT_EQ(chat[0].at("logprobs").at("content").size(), 1u);
  EXPECT_TRUE(chat[1].at("logprobs").is_null());
  const std::vector<Json> text = Choices(DeltaEvents(Header(Endpoint::kCompletions), delta));
  ASSERT_EQ(text.size(), 1u);
  EXPECT_EQ(text[0].at("logprobs").at("tokens").size(), 2u);
}

TEST_F(LogprobsTest, TheyComeAlsoWhereTheirTextIsHeldBack) {
  GenerationDelta delta;
  delta.answer_tokens = {Token("a", -1)};
  for (const Endpoint endpoint : {Endpoint::kChatCompletions, Endpoint::kCompletions}) {
    const std::vector<Json> choices = Choices(DeltaEvents(Header(endpoint), delta));
    ASSERT_EQ(choices.size(), 1u);
    EXPECT_FALSE(choices[0].at("logprobs").is_null());
  }
}

}  // namespace
}  // namespace baton::router
