#include "router/chat/chat_prompts.h"

#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/test_path.h"

namespace baton::router {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string WriteFile(const std::string& content) {
  const std::string path = baton::testing::TestPath("chat_prompts");
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

TEST(ChatPromptsTest, ReadsTheFileOfTheNeedleModel) {
  const auto prompts =
      LoadChatPrompts(std::string(BATON_SOURCE_DIR) + "/models/needle-17m/chat_prompts.json");
  ASSERT_TRUE(prompts.ok()) << prompts.status();
  EXPECT_THAT(prompts->tools_before_schemas, HasSubstr("<｜DSML｜tool_calls>"));
  EXPECT_TRUE(prompts->reasoning_effort_max.ends_with("\n\n"));
  EXPECT_TRUE(prompts->tools_after_schemas.starts_with("\n\n"));
  EXPECT_TRUE(prompts->response_format.ends_with("\n"));
}

TEST(ChatPromptsTest, AbsentFileIsNamed) {
  const auto prompts = LoadChatPrompts("/nonexistent/chat_prompts.json");
  EXPECT_EQ(prompts.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(prompts.status().message()), HasSubstr("/nonexistent/"));
}

TEST(ChatPromptsTest, MissingKeyIsNamedWithTheFile) {
  const std::string path = WriteFile(R"({"reasoning_effort_max": "x"})");
  const auto prompts = LoadChatPrompts(path);
  EXPECT_EQ(prompts.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(prompts.status().message()),
              AllOf(HasSubstr(path), HasSubstr("tools_before_schemas")));
}

TEST(ChatPromptsTest, ATextForHighEffortMayBeThere) {
  const auto prompts = LoadChatPrompts(WriteFile(
      R"({"reasoning_effort_max": "m", "reasoning_effort_high": "h", "tools_before_schemas": "b",
          "tools_after_schemas": "a", "response_format": "f"})"));
  ASSERT_TRUE(prompts.ok()) << prompts.status();
  EXPECT_EQ(prompts->reasoning_effort_high, "h");
}

TEST(ChatPromptsTest, OtherContentIsRefused) {
  for (const char* content : {"", "[]", "{", "{\"reasoning_effort_max\": 3}",
                              "{\"reasoning_effort_max\": \"x\", \"reasoning_effort_high\": 3}"}) {
    EXPECT_FALSE(LoadChatPrompts(WriteFile(content)).ok()) << content;
  }
}

}  // namespace
}  // namespace baton::router
