#include "cli/chat_prompt_import.h"

#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "cli/sha256.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "router/chat/chat_prompts.h"
#include "tests/testing/status_matchers.h"

namespace baton::cli {
namespace {

using baton::testing::StatusIs;
using ::testing::HasSubstr;

// An encoding file in the form of the real one, in other words.
constexpr const char* kSource = R"py(
"""Encodes chats."""
dsml_token: str = "｜DSML｜"
thinking_start_token: str = "<think>"
thinking_end_token: str = "</think>"
response_format_template: str = (
    "Answer as:\n{schema}"
)
REASONING_EFFORT_MAX = (
    "Think "
    "hard.\n\n"
)
TOOLS_TEMPLATE = """# Tools
Write <{dsml_token}tool_calls> after {thinking_start_token}...{thinking_end_token}.

{tool_schemas}

That is all, {dsml_token}.
"""

def render(tools):
    return TOOLS_TEMPLATE.format(tool_schemas="\n".join(tools), dsml_token=dsml_token)
)py";

const ChatPromptDigests& Digests() {
  static const ChatPromptDigests digests = {
      .reasoning_effort_max = Sha256("Think hard.\n\n"),
      .reasoning_effort_high = Sha256("Think harder.\n\n"),
      .reasoning_effort_max_above_high = Sha256("Think hardest.\n\n"),
      .tools_before_schemas =
          Sha256("# Tools\nWrite <｜DSML｜tool_calls> after <think>...</think>.\n\n"),
      .tools_after_schemas = Sha256("\n\nThat is all, ｜DSML｜.\n"),
      .response_format = Sha256("Answer as:\n")};
  return digests;
}

std::string Replaced(absl::string_view from, absl::string_view to) {
  return absl::StrReplaceAll(kSource, {{from, to}});
}

TEST(Sha256Test, OfAbc) {
  EXPECT_EQ(Sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(ChatPromptImportTest, FillsInTokensAndCutsAtTheSchemas) {
  BATON_ASSERT_OK_AND_ASSIGN(const ChatPromptTexts texts, ImportChatPrompts(kSource, Digests()));
  EXPECT_EQ(texts.reasoning_effort_max, "Think hard.\n\n");
  EXPECT_EQ(texts.tools_before_schemas,
            "# Tools\nWrite <｜DSML｜tool_calls> after <think>...</think>.\n\n");
  EXPECT_EQ(texts.tools_after_schemas, "\n\nThat is all, ｜DSML｜.\n");
  EXPECT_EQ(texts.response_format, "Answer as:\n");
}

TEST(ChatPromptImportTest, TheRouterReadsWhatIsWritten) {
  BATON_ASSERT_OK_AND_ASSIGN(const ChatPromptTexts texts, ImportChatPrompts(kSource, Digests()));
  const std::string path = ::testing::TempDir() + "/imported_chat_prompts.json";
  std::ofstream(path) << ToJson(texts);
  BATON_ASSERT_OK_AND_ASSIGN(const router::ChatPrompts read, router::LoadChatPrompts(path));
  EXPECT_EQ(read.reasoning_effort_max, texts.reasoning_effort_max);
  EXPECT_EQ(read.tools_before_schemas, texts.tools_before_schemas);
  EXPECT_EQ(read.tools_after_schemas, texts.tools_after_schemas);
  EXPECT_EQ(read.response_format, texts.response_format);
}

TEST(ChatPromptImportTest, TakesTheTextsOfSeveralEfforts) {
  const std::string source =
      Replaced("REASONING_EFFORT_MAX = (\n    \"Think \"\n    \"hard.\\n\\n\"\n)",
               R"py(REASONING_EFFORT_PROMPTS: Dict[str, str] = {
    "low": "",  # nothing
    "high": (
        "Think "
        "harder.\n\n"
    ),
    'max': "Think hardest.\n\n",
}
DEFAULT_REASONING_EFFORT = "low")py");
  BATON_ASSERT_OK_AND_ASSIGN(const ChatPromptTexts texts, ImportChatPrompts(source, Digests()));
  EXPECT_EQ(texts.reasoning_effort_high, "Think harder.\n\n");
  EXPECT_EQ(texts.reasoning_effort_max, "Think hardest.\n\n");
  const std::string path = ::testing::TempDir() + "/imported_effort_prompts.json";
  std::ofstream(path) << ToJson(texts);
  BATON_ASSERT_OK_AND_ASSIGN(const router::ChatPrompts read, router::LoadChatPrompts(path));
  EXPECT_EQ(read.reasoning_effort_high, texts.reasoning_effort_high);

  const auto with = [&](absl::string_view from, absl::string_view to) {
    return ImportChatPrompts(absl::StrReplaceAll(source, {{from, to}}), Digests()).status();
  };
  EXPECT_THAT(with("harder", "longer"),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("reasoning_effort_high")));
  EXPECT_THAT(with("hardest", "longest"),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("reasoning_effort_max")));
  EXPECT_THAT(with("\"low\": \"\"", "\"low\": \"x\""),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("[low] is not empty")));
  EXPECT_THAT(with("\"high\"", "\"higher\""),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("[high]")));
}

TEST(ChatPromptImportTest, RefusesOtherWordsThanTheModelWasTrainedWith) {
  EXPECT_THAT(ImportChatPrompts(Replaced("hard", "harder"), Digests()),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("reasoning_effort_max")));
  EXPECT_THAT(ImportChatPrompts(Replaced("That is all", "Those are all"), Digests()),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("tools_after_schemas")));
  EXPECT_THAT(ImportChatPrompts(Replaced("<think>", "<thought>"), Digests()),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("tools_before_schemas")));
  EXPECT_THAT(
      ImportChatPrompts(kSource, OfficialDigests()),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("expected f7a24f3b3050d4a8")));
}

TEST(ChatPromptImportTest, NamesWhatTheFileLacks) {
  const struct {
    const char* from;
    const char* to;
    const char* named;
  } cases[] = {{"REASONING_EFFORT_MAX =", "REASONING_EFFORT_PROMPTS =", "REASONING_EFFORT_MAX"},
               {"dsml_token: str", "token: str", "dsml_token"},
               {"{tool_schemas}", "{schemas}", "0 times {tool_schemas}"},
               {"{schema}", "{schema}!", "does not end with {schema}"}};
  for (const auto& c : cases) {
    EXPECT_THAT(ImportChatPrompts(Replaced(c.from, c.to), Digests()),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(c.named)));
  }
}

// The official texts are no part of this repository; where they stand beside it, a file made of
// them has the official digests.
TEST(ChatPromptImportTest, AcceptsTheOfficialTexts) {
  const std::string path = std::string(BATON_SOURCE_DIR) + "/../shared/encoding/prompts.json";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no official texts at " << path;
  std::ifstream stream(path);
  const auto official = nlohmann::json::parse(stream);
  // JSON's string literals are Python's, but for what the templates name.
  const auto literal = [&](const char* key) {
    return absl::StrReplaceAll(official.at(key).dump(), {{"｜DSML｜", "{dsml_token}"},
                                                         {"</think>", "{thinking_end_token}"},
                                                         {"<think>", "{thinking_start_token}"}});
  };
  const std::string source = absl::StrCat(
      "dsml_token = '｜DSML｜'\nthinking_start_token = '<think>'\nthinking_end_token = "
      "'</think>'\n",
      "REASONING_EFFORT_MAX = ", literal("effort_max"), "\nTOOLS_TEMPLATE = (",
      literal("tools_head"), "\n    '{tool_schemas}'\n", literal("tools_tail"),
      ")\nresponse_format_template = ", literal("response_format_head"), " '{schema}'\n");
  BATON_ASSERT_OK_AND_ASSIGN(const ChatPromptTexts texts,
                             ImportChatPrompts(source, OfficialDigests()));
  EXPECT_EQ(texts.tools_before_schemas, official.at("tools_head").get<std::string>());
}

}  // namespace
}  // namespace baton::cli
