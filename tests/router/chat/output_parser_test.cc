#include "router/chat/output_parser.h"

#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "router/chat/renderer.h"

namespace baton::router {
namespace {

using Kind = OutputDelta::Kind;
using EndedBy = OutputParser::EndedBy;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr OutputParser::Options kChat = {.starts_in_reasoning = false, .finds_tool_calls = true};
constexpr OutputParser::Options kThinking = {.starts_in_reasoning = true, .finds_tool_calls = true};

// Test texts write @ for the DSML token.
std::string Text(const std::string& text) { return absl::StrReplaceAll(text, {{"@", "｜DSML｜"}}); }

ParsedOutput ParseInPieces(const std::vector<std::string>& pieces, OutputParser::Options options) {
  OutputParser parser(options);
  ParsedOutput output;
  for (const std::string& piece : pieces) {
    for (const OutputDelta& delta : parser.Push(piece)) output.Add(delta);
  }
  for (const OutputDelta& delta : parser.Finish(EndedBy::kModel)) output.Add(delta);
  return output;
}

std::string Describe(const ParsedOutput& output) {
  std::string text = "R:" + output.reasoning + " C:" + output.content;
  for (const ToolCall& call : output.tool_calls)
    text += " " + call.name + "(" + call.arguments + ")";
  return text;
}

// Parses the text in one piece and byte by byte, which must agree.
ParsedOutput Parse(const std::string& short_text, OutputParser::Options options) {
  const std::string text = Text(short_text);
  std::vector<std::string> bytes;
  for (const char c : text) bytes.push_back(std::string(1, c));
  const ParsedOutput whole = ParseInPieces({text}, options);
  EXPECT_EQ(Describe(whole), Describe(ParseInPieces(bytes, options)));
  return whole;
}

TEST(OutputParserTest, EmptyAnswerHasNoDeltas) {
  OutputParser parser(kThinking);
  EXPECT_THAT(parser.Push(""), IsEmpty());
  EXPECT_THAT(parser.Finish(EndedBy::kModel), IsEmpty());
}

TEST(OutputParserTest, ReasoningEndsAtItsTag) {
  const ParsedOutput output = Parse("first\n\n</think>then\n", kThinking);
  EXPECT_EQ(output.reasoning, "first\n\n");
  EXPECT_EQ(output.content, "then\n");
}

TEST(OutputParserTest, ReasoningWithoutEndStaysReasoning) {
  const ParsedOutput output = Parse("only thoughts </thin\n", kThinking);
  EXPECT_EQ(output.reasoning, "only thoughts </thin\n");
  EXPECT_EQ(output.content, "");
}

TEST(OutputParserTest, ChatModeLeavesThinkingTagsInTheContent) {
  EXPECT_EQ(Parse("a</think>b", kChat).content, "a</think>b");
}

TEST(OutputParserTest, TextComesOutAsSoonAsItCannotBeMarkup) {
  OutputParser parser(kThinking);
  EXPECT_THAT(parser.Push("a<"), ElementsAre(OutputDelta{Kind::kReasoning, "a", 0}));
  EXPECT_THAT(parser.Push("b"), ElementsAre(OutputDelta{Kind::kReasoning, "<b", 0}));
  EXPECT_THAT(parser.Push("</think>c\n"), ElementsAre(OutputDelta{Kind::kContent, "c", 0}));
  EXPECT_THAT(parser.Push("d"), ElementsAre(OutputDelta{Kind::kContent, "\nd", 0}));
}

TEST(OutputParserTest, ToolCallsBecomeNamesAndJsonArguments) {
  const ParsedOutput output = Parse(
      "think</think>Let me look.\n\n<@tool_calls>\n"
      "<@invoke name=\"get_weather\">\n"
      "<@parameter name=\"city\" string=\"true\">\"Oslo\"\n<b></@parameter>\n"
      "<@parameter name=\"days\" string=\"false\">[1, 2]</@parameter>\n"
      "</@invoke>\n<@invoke name=\"now\">\n\n</@invoke>\n</@tool_calls>",
      kThinking);
  EXPECT_EQ(output.reasoning, "think");
  EXPECT_EQ(output.content, "Let me look.");
  ASSERT_EQ(output.tool_calls.size(), 2u);
  EXPECT_EQ(output.tool_calls[0].name, "get_weather");
  EXPECT_EQ(output.tool_calls[0].arguments, R"({"city": "\"Oslo\"\n<b>", "days": [1, 2]})");
  EXPECT_EQ(output.tool_calls[1].name, "now");
  EXPECT_EQ(output.tool_calls[1].arguments, "{}");
}

TEST(OutputParserTest, StringArgumentsStreamWhileTheyAreWritten) {
  OutputParser parser(kChat);
  EXPECT_THAT(parser.Push(Text("\n\n<@tool_calls>\n<@invoke name=\"f\">\n")),
              ElementsAre(OutputDelta{Kind::kToolCallStart, "f", 0}));
  EXPECT_TRUE(parser.has_tool_calls());
  EXPECT_THAT(parser.Push(Text("<@parameter name=\"k\" string=\"true\">ab")),
              ElementsAre(OutputDelta{Kind::kToolCallArguments, "{\"k\": \"ab", 0}));
  EXPECT_THAT(parser.Push("c\n<"), ElementsAre(OutputDelta{Kind::kToolCallArguments, "c\\n", 0}));
  EXPECT_THAT(parser.Push(Text("/@parameter>\n</@invoke>")),
              ElementsAre(OutputDelta{Kind::kToolCallArguments, "\"}", 0}));
}

TEST(OutputParserTest, ToolMarkupIsContentWhenThereAreNoTools) {
  const std::string text = Text("a\n\n<@tool_calls>\n<@invoke name=\"f\">\n</@invoke>");
  const ParsedOutput output = ParseInPieces({text}, {});
  EXPECT_EQ(output.content, text);
  EXPECT_THAT(output.tool_calls, IsEmpty());
}

TEST(OutputParserTest, ToolCallsEndReasoningThatWasNotClosed) {
  const ParsedOutput output =
      Parse("hm\n\n<@tool_calls>\n<@invoke name=\"f\">\n</@invoke>\n</@tool_calls>", kThinking);
  EXPECT_EQ(output.reasoning, "hm");
  ASSERT_EQ(output.tool_calls.size(), 1u);
  EXPECT_EQ(output.tool_calls[0].arguments, "{}");
}

TEST(OutputParserTest, AModelThatEndsInACallStillHasJsonArguments) {
  const std::string full = Text(
      "\n\n<@tool_calls>\n<@invoke name=\"f\">\n<@parameter name=\"a\" string=\"true\">x\"y"
      "</@parameter>\n<@parameter name=\"b\" string=\"false\">{\"c\": 1}</@parameter>\n</@invoke>\n"
      "</@tool_calls>");
  for (size_t size = 0; size <= full.size(); ++size) {
    if (size < full.size() && (full[size] & 0xC0) == 0x80) continue;  // inside a code point
    const ParsedOutput output = ParseInPieces({full.substr(0, size)}, kChat);
    for (const ToolCall& call : output.tool_calls) {
      EXPECT_TRUE(nlohmann::json::parse(call.arguments, nullptr, false).is_object())
          << size << ": " << call.arguments;
    }
  }
}

TEST(OutputParserTest, ACallThatIsCutStaysCut) {
  const auto arguments = [](const std::string& parameters, bool in_call) {
    OutputParser parser(kChat);
    ParsedOutput output;
    const std::string text = "<@tool_calls><@invoke name=\"f\">" + parameters;
    for (const OutputDelta& delta : parser.Push(Text(text))) output.Add(delta);
    for (const OutputDelta& delta : parser.Finish(EndedBy::kLimit)) output.Add(delta);
    EXPECT_EQ(parser.in_tool_call(), in_call) << parameters;
    return output.tool_calls.at(0).arguments;
  };
  EXPECT_EQ(arguments("", true), "");
  EXPECT_EQ(arguments("<@parameter name=\"a\" string=\"true\">le", true), R"({"a": "le)");
  EXPECT_EQ(arguments("<@parameter name=\"a\" string=\"false\">[1, 2", true), R"({"a": [1, 2)");
  EXPECT_EQ(arguments("<@parameter name=\"a\" string=\"false\">7</@parameter>", true),
            R"({"a": 7)");
  EXPECT_EQ(arguments("<@parameter name=\"a\">7</@parameter></@invoke>\n", false), R"({"a": 7})");
}

TEST(OutputParserTest, ValuesThatAreNoJsonBecomeStrings) {
  const ParsedOutput output = Parse(
      "<@tool_calls><@invoke name=\"f\"><@parameter name=\"a\" string=\"false\">nope</@parameter>"
      "<@parameter name=\"b\">7</@parameter></@invoke></@tool_calls>",
      kChat);
  ASSERT_EQ(output.tool_calls.size(), 1u);
  EXPECT_EQ(output.tool_calls[0].arguments, R"({"a": "nope", "b": 7})");
}

TEST(OutputParserTest, MissingClosingTagOfACallIsSupplied) {
  const ParsedOutput output =
      Parse("<@tool_calls>\n<@invoke name=\"f\">\n<@invoke name=\"g\">\n</@tool_calls>tail", kChat);
  ASSERT_EQ(output.tool_calls.size(), 2u);
  EXPECT_EQ(output.tool_calls[0].arguments, "{}");
  EXPECT_EQ(output.tool_calls[1].arguments, "{}");
  EXPECT_EQ(output.content, "tail");
}

TEST(OutputParserTest, TextWhereATagShouldBeBecomesContent) {
  const ParsedOutput output = Parse(
      "hi\n\n<@tool_calls>\nwhat now <@invoke name=\"f\">\nwell <b>\n</@invoke>\n</@tool_calls>",
      kChat);
  EXPECT_EQ(output.content, Text("hi\n\n<@tool_calls>\nwhat now\nwell <b>"));
  ASSERT_EQ(output.tool_calls.size(), 1u);
}

TEST(OutputParserTest, BlockWithoutCallsIsContent) {
  for (const char* text :
       {"a\n\n<@tool_calls>", "\n<@tool_calls>\n</@tool_calls>",
        "<@tool_calls>\n<@invoke nam=\"f\">", "<@tool_calls>\n<@invoke name=\"f"}) {
    EXPECT_EQ(Parse(text, kChat).content, Text(text));
  }
}

TEST(OutputParserTest, EndlessOpeningTagIsContent) {
  const std::string text = Text("<@tool_calls><@invoke name=\"") + std::string(10000, 'x');
  EXPECT_EQ(Parse(text, kChat).content, text);
  EXPECT_EQ(Parse(text + "\">", kChat).content, text + "\">");
}

TEST(OutputParserTest, NewlinesAroundABlockAreNoContent) {
  const ParsedOutput output =
      Parse("a\n\n\n<@tool_calls>\n<@invoke name=\"f\">\n\n</@invoke>\n</@tool_calls>\n", kChat);
  EXPECT_EQ(output.content, "a\n");
}

TEST(OutputParserTest, DeltasDoNotDependOnTheCutsOfRandomMarkup) {
  const std::vector<std::string> tokens = {"<",
                                           "</",
                                           "<@tool_calls>",
                                           "</@tool_calls>",
                                           "<@invoke name=\"",
                                           "f\">",
                                           "\">",
                                           "</@invoke>",
                                           "\n",
                                           "\n\n",
                                           "</@parameter>",
                                           "@",
                                           "text",
                                           "</think>",
                                           "<think>",
                                           "é",
                                           "<@parameter name=\"k\" string=\"true\">",
                                           " ",
                                           "{\"a\": 1}",
                                           "<@parameter name=\"n\" string=\"false\">",
                                           "<@invoke name=\"g\">"};
  std::mt19937 random(7);
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    const int count = random() % 25;
    for (int i = 0; i < count; ++i) text += Text(tokens[random() % tokens.size()]);
    const OutputParser::Options options = round % 2 ? kChat : kThinking;
    std::vector<std::string> pieces;
    for (size_t pos = 0; pos < text.size();) {
      pieces.push_back(text.substr(pos, 1 + random() % 9));
      pos += pieces.back().size();
    }
    const ParsedOutput whole = ParseInPieces({text}, options);
    ASSERT_EQ(Describe(ParseInPieces(pieces, options)), Describe(whole)) << text;
    for (const ToolCall& call : whole.tool_calls) {
      ASSERT_TRUE(nlohmann::json::parse(call.arguments, nullptr, false).is_object()) << text;
    }
  }
}

TEST(OutputParserTest, RenderedAnswersParseBackToWhatTheyWere) {
  Message answer = TextMessage(Role::kAssistant, "Content.");
  answer.reasoning_content = "Reasoning.";
  answer.tool_calls = {{"", "f", R"({"s": "a\"b", "n": [1, {"k": null}], "ü": ""})"},
                       {"", "g", "{}"}};
  answer.without_eos = true;
  const std::vector<Message> messages = {TextMessage(Role::kUser, "U"), answer};
  const auto segments =
      RenderPrompt(messages, ChatPrompts{}, {.thinking_mode = ThinkingMode::kThinking});
  ASSERT_TRUE(segments.ok()) << segments.status();
  const std::string prompt = PromptText(*segments);
  const std::string opening = "<think>";
  const ParsedOutput output =
      Parse(prompt.substr(prompt.find(opening) + opening.size()), kThinking);
  EXPECT_EQ(output.reasoning, "Reasoning.");
  EXPECT_EQ(output.content, "Content.");
  ASSERT_EQ(output.tool_calls.size(), 2u);
  EXPECT_EQ(output.tool_calls[0].arguments, answer.tool_calls[0].arguments);
  EXPECT_EQ(output.tool_calls[1].arguments, "{}");
}

TEST(OutputParserTest, AValueThatIsJsonUpToAZeroByteIsAString) {
  const ParsedOutput output =
      Parse("<@tool_calls>\n<@invoke name=\"f\">\n<@parameter name=\"n\" string=\"false\">2" +
                std::string("\0 x", 3) + "</@parameter>\n</@invoke>\n</@tool_calls>",
            kChat);
  ASSERT_EQ(output.tool_calls.size(), 1u);
  EXPECT_EQ(output.tool_calls[0].arguments, R"({"n": "2\u0000 x"})");
}

}  // namespace
}  // namespace baton::router
