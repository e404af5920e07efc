#include "router/dispatch/text_pipeline.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "router/dispatch/served_model.h"
#include "tests/testing/status_matchers.h"

namespace baton::router {
namespace {

using baton::testing::StatusIs;

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

  static std::vector<int32_t> Ids(const std::string& text) {
    return Model().tokenizer.Encode(text, AddedTokenText::kMatch);
  }
};

TEST_F(TextPipelineTest, TextComesOutAsItWentIn) {
  auto pipeline = Make({});
  GenerationDelta out;
  PushAll(*pipeline, Ids("The grass is green. 你好"), &out);
  pipeline->Finish(&out);
  EXPECT_EQ(out.text, "The grass is green. 你好");
  EXPECT_EQ(pipeline->matched_stop(), "");
}

TEST_F(TextPipelineTest, AStopStringEndsTheTextBeforeIt) {
  auto pipeline = Make({"xyz", " green"});
  GenerationDelta out;
  const std::vector<int32_t> ids = Ids("The grass is green. The sky");
  EXPECT_LT(PushAll(*pipeline, ids, &out), ids.size());
  pipeline->Finish(&out);
  EXPECT_EQ(out.text, "The grass is");
  EXPECT_EQ(pipeline->matched_stop(), " green");
}

TEST_F(TextPipelineTest, TheBeginningOfAStopStringIsHeldBackUntilTheEnd) {
  auto pipeline = Make({"green. The sea"});
  GenerationDelta out;
  PushAll(*pipeline, Ids("grass is green. The s"), &out);
  EXPECT_EQ(out.text, "grass is ");
  pipeline->Finish(&out);
  EXPECT_EQ(out.text, "grass is green. The s");
}

TEST_F(TextPipelineTest, ControlTokensAreNotText) {
  auto pipeline = Make({});
  GenerationDelta out;
  PushAll(*pipeline, {Model().markup.bos, Model().markup.user}, &out);
  PushAll(*pipeline, Ids("hi"), &out);
  PushAll(*pipeline, {Model().markup.eos}, &out);
  pipeline->Finish(&out);
  EXPECT_EQ(out.text, "hi");
}

TEST_F(TextPipelineTest, ReasoningIsToldFromTheAnswer) {
  auto pipeline = Make({}, OutputParser::Options{.starts_in_reasoning = true});
  GenerationDelta out;
  PushAll(*pipeline, Ids("think hard</think>the answer"), &out);
  pipeline->Finish(&out);
  EXPECT_EQ(out.reasoning, "think hard");
  EXPECT_EQ(out.text, "the answer");
  EXPECT_FALSE(pipeline->has_tool_calls());
}

TEST_F(TextPipelineTest, ToolCallsComeAsPieces) {
  auto pipeline = Make({}, OutputParser::Options{.finds_tool_calls = true});
  GenerationDelta out;
  PushAll(*pipeline,
          Ids("Wait.\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"get_x\">\n"
              "<｜DSML｜parameter name=\"a\" string=\"true\">v</｜DSML｜parameter>\n"
              "</｜DSML｜invoke>\n</｜DSML｜tool_calls>"),
          &out);
  pipeline->Finish(&out);
  EXPECT_EQ(out.text, "Wait.");
  ASSERT_TRUE(pipeline->has_tool_calls());
  std::string arguments;
  for (const ToolCallDelta& call : out.tool_calls) {
    EXPECT_EQ(call.index, 0);
    arguments += call.arguments;
  }
  EXPECT_EQ(out.tool_calls.front().name, "get_x");
  EXPECT_NE(out.tool_calls.front().id, "");
  EXPECT_EQ(nlohmann::json::parse(arguments), nlohmann::json({{"a", "v"}}));
}

TEST_F(TextPipelineTest, RefusesAnEmptyStopString) {
  EXPECT_THAT(TextPipeline::Create({.tokenizer = &Model().tokenizer, .stop = {""}}),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace baton::router
