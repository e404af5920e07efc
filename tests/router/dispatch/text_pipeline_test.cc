#include "router/dispatch/text_pipeline.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "router/dispatch/served_model.h"
#include "router/tokenizer/utf8.h"
#include "tests/testing/status_matchers.h"

namespace baton::router {
namespace {

using baton::testing::StatusIs;
using EndedBy = OutputParser::EndedBy;

class TextPipelineTest : public ::testing::Test {
 protected:
  static const ServedModel& Model() {
    static const ServedModel* model =
        new ServedModel(*ServedModel::Load(BATON_SOURCE_DIR "/models/needle-17m", ""));
    return *model;
  }

  std::unique_ptr<TextPipeline> Make(std::vector<std::string> stop,
                                     std::optional<OutputParser::Options> chat = std::nullopt) {
    return *TextPipeline::Create({.tokenizer = &Model().tokenizer,
                                  .stop = std::move(stop),
                                  .chat = chat,
                                  .keep_ids = {Model().markup.think_end, Model().markup.dsml}});
  }

  // Pushes until a stop string is found; the number of tokens that were pushed.
  static size_t PushAll(TextPipeline& pipeline, const std::vector<int32_t>& ids,
                        GenerationDelta* out) {
    for (size_t i = 0; i < ids.size(); ++i) {
      if (!pipeline.Push(ids[i], out)) return i + 1;
    }
    return ids.size();
  }

  // The same with log-probabilities, which name the token.
  static void PushScored(TextPipeline& pipeline, const std::vector<int32_t>& ids,
                         GenerationDelta* out) {
    for (const int32_t id : ids) {
      if (!pipeline.Push(id, TokenLogprobs{.chosen = {.token = id}, .top = {}}, out)) return;
    }
  }

  static std::vector<int32_t> TokensOf(const GenerationDelta& delta) {
    std::vector<int32_t> ids;
    for (const AnswerToken& token : delta.answer_tokens) ids.push_back(token.logprobs.chosen.token);
    return ids;
  }

  static std::vector<int32_t> Ids(const std::string& text) {
    return Model().tokenizer.Encode(text, AddedTokenText::kMatch);
  }
};

TEST_F(TextPipelineTest, TextComesOutAsItWentIn) {
  auto pipeline = Make({});
  GenerationDelta out;
  PushAll(*pipeline, Ids("The grass is green. 你好"), &out);
  pipeline->Finish(EndedBy::kModel, &out);
  EXPECT_EQ(out.text, "The grass is green. 你好");
  EXPECT_EQ(pipeline->matched_stop(), "");
}

TEST_F(TextPipelineTest, AStopStringEndsTheTextBeforeIt) {
  auto pipeline = Make({"xyz", " green"});
  GenerationDelta out;
  const std::vector<int32_t> ids = Ids("The grass is green. The sky");
  EXPECT_LT(PushAll(*pipeline, ids, &out), ids.size());
  pipeline->Finish(EndedBy::kModel, &out);
  EXPECT_EQ(out.text, "The grass is");
  EXPECT_EQ(pipeline->matched_stop(), " green");
}

TEST_F(TextPipelineTest, TheBeginningOfAStopStringIsHeldBackUntilTheEnd) {
  auto pipeline = Make({"green. The sea"});
  GenerationDelta out;
  PushAll(*pipeline, Ids("grass is green. The s"), &out);
  EXPECT_EQ(out.text, "grass is ");
  pipeline->Finish(EndedBy::kModel, &out);
  EXPECT_EQ(out.text, "grass is green. The s");
}

TEST_F(TextPipelineTest, ControlTokensAreNotText) {
  auto pipeline = Make({});
  GenerationDelta out;
  PushAll(*pipeline, {Model().markup.bos, Model().markup.user}, &out);
  PushAll(*pipeline, Ids("hi"), &out);
  PushAll(*pipeline, {Model().markup.eos}, &out);
  pipeline->Finish(EndedBy::kModel, &out);
  EXPECT_EQ(out.text, "hi");
}

TEST_F(TextPipelineTest, ReasoningIsToldFromTheAnswer) {
  auto pipeline = Make({}, OutputParser::Options{.starts_in_reasoning = true});
  GenerationDelta out;
  PushAll(*pipeline, Ids("think hard</think>the answer"), &out);
  pipeline->Finish(EndedBy::kModel, &out);
  EXPECT_EQ(out.reasoning, "think hard");
  EXPECT_EQ(out.text, "the answer");
  EXPECT_FALSE(pipeline->has_whole_tool_calls());
}

TEST_F(TextPipelineTest, ToolCallsComeAsPieces) {
  auto pipeline = Make({}, OutputParser::Options{.finds_tool_calls = true});
  GenerationDelta out;
  PushAll(*pipeline,
          Ids("Wait.\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"get_x\">\n"
              "<｜DSML｜parameter name=\"a\" string=\"true\">v</｜DSML｜parameter>\n"
              "</｜DSML｜invoke>\n</｜DSML｜tool_calls>"),
          &out);
  pipeline->Finish(EndedBy::kModel, &out);
  EXPECT_EQ(out.text, "Wait.");
  ASSERT_TRUE(pipeline->has_whole_tool_calls());
  std::string arguments;
  for (const ToolCallDelta& call : out.tool_calls) {
    EXPECT_EQ(call.index, 0);
    arguments += call.arguments;
  }
  EXPECT_EQ(out.tool_calls.front().name, "get_x");
  EXPECT_NE(out.tool_calls.front().id, "");
  EXPECT_EQ(nlohmann::json::parse(arguments), nlohmann::json({{"a", "v"}}));
}

TEST_F(TextPipelineTest, AStopStringInAToolCallLeavesItCut) {
  auto pipeline = Make({"SECRET"}, OutputParser::Options{.finds_tool_calls = true});
  GenerationDelta out;
  PushAll(*pipeline,
          Ids("<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"get_x\">\n"
              "<｜DSML｜parameter name=\"a\" string=\"true\">the SECRET word</｜DSML｜parameter>\n"
              "</｜DSML｜invoke>\n</｜DSML｜tool_calls>"),
          &out);
  pipeline->Finish(EndedBy::kModel, &out);
  EXPECT_EQ(pipeline->matched_stop(), "SECRET");
  EXPECT_FALSE(pipeline->has_whole_tool_calls());
  std::string arguments;
  for (const ToolCallDelta& call : out.tool_calls) arguments += call.arguments;
  EXPECT_EQ(arguments, R"({"a": "the )");
}

TEST_F(TextPipelineTest, LogprobsComeWithTheTextOfTheirTokens) {
  auto pipeline = Make({});
  GenerationDelta out;
  const std::vector<int32_t> ids = Ids("Grüße: 你好, the grass is green.");
  for (size_t i = 0; i < ids.size(); ++i) {
    PushScored(*pipeline, {ids[i]}, &out);
    if (out.answer_tokens.size() == i + 1) continue;
    // Held back with the character that is not complete.
    EXPECT_LT(Model().tokenizer.Decode(std::span(ids).first(i + 1)).rfind("\uFFFD"),
              std::string::npos);
  }
  pipeline->Finish(EndedBy::kModel, &out);
  EXPECT_EQ(TokensOf(out), ids);
  // Offsets count characters, and all tokens of one character begin with it.
  std::u32string text;
  for (size_t i = 0; i < out.text.size(); i += NextUtf8(out.text, i).bytes) {
    text.push_back(NextUtf8(out.text, i).code_point);
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    const std::string_view bytes = Model().tokenizer.TokenBytes(ids[i]);
    const size_t offset = out.answer_tokens[i].text_offset;
    ASSERT_LT(offset, text.size());
    if (IsValidUtf8(bytes)) {
      EXPECT_EQ(NextUtf8(bytes, 0).code_point, text[offset]) << i;
    }
    EXPECT_GE(offset, i == 0 ? 0 : out.answer_tokens[i - 1].text_offset);
  }
  EXPECT_EQ(out.answer_tokens[0].text_offset, 0u);
}

TEST_F(TextPipelineTest, AStopStringCutsLogprobsWithTheText) {
  const std::vector<int32_t> ids = Ids("The grass is green. The sky");
  for (const std::string stop : {" green", "n. The", "ss", "The", "green. The sky is"}) {
    auto pipeline = Make({stop});
    GenerationDelta out;
    PushScored(*pipeline, ids, &out);
    pipeline->Finish(EndedBy::kModel, &out);
    // Those that begin in what is left of the text.
    size_t begin = 0;
    std::vector<int32_t> expected;
    for (const int32_t id : ids) {
      if (begin < out.text.size()) expected.push_back(id);
      begin += Model().tokenizer.TokenBytes(id).size();
    }
    EXPECT_EQ(TokensOf(out), expected) << stop;
  }
}

TEST_F(TextPipelineTest, TokensThatAreNoTextHaveNoLogprobs) {
  auto pipeline = Make({});
  GenerationDelta out;
  const std::vector<int32_t> ids = Ids("hi");
  PushScored(*pipeline, {Model().markup.bos}, &out);
  PushScored(*pipeline, ids, &out);
  PushScored(*pipeline, {Model().markup.eos}, &out);
  pipeline->Finish(EndedBy::kModel, &out);
  EXPECT_EQ(TokensOf(out), ids);
}

TEST_F(TextPipelineTest, AnIncompleteCharacterAtTheEndKeepsItsTokens) {
  auto pipeline = Make({});
  GenerationDelta out;
  std::vector<int32_t> ids = Ids("a你");
  while (IsValidUtf8(Model().tokenizer.TokenBytes(ids.back()))) ids.pop_back();
  ids.pop_back();
  PushScored(*pipeline, ids, &out);
  EXPECT_LT(out.answer_tokens.size(), ids.size());
  pipeline->Finish(EndedBy::kModel, &out);
  EXPECT_EQ(out.text, "a\uFFFD");
  EXPECT_EQ(TokensOf(out), ids);
}

TEST_F(TextPipelineTest, LogprobsSayWhichTokensAreReasoning) {
  // With a stop string that holds text back across the border.
  auto pipeline = Make({"hard</think>the sea"}, OutputParser::Options{.starts_in_reasoning = true});
  GenerationDelta out;
  const std::vector<int32_t> thought = Ids("think hard</think>");
  const std::vector<int32_t> answer = Ids("the answer");
  PushScored(*pipeline, thought, &out);
  PushScored(*pipeline, answer, &out);
  pipeline->Finish(EndedBy::kModel, &out);
  EXPECT_EQ(out.reasoning, "think hard");
  EXPECT_EQ(out.text, "the answer");
  ASSERT_EQ(out.answer_tokens.size(), thought.size() + answer.size());
  for (size_t i = 0; i < out.answer_tokens.size(); ++i) {
    EXPECT_EQ(out.answer_tokens[i].is_reasoning, i < thought.size()) << i;
  }
}

TEST_F(TextPipelineTest, RefusesAnEmptyStopString) {
  EXPECT_THAT(TextPipeline::Create({.tokenizer = &Model().tokenizer, .stop = {""}}),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace baton::router
