#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <openssl/evp.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "router/chat/renderer.h"
#include "tests/router/chat/messages_from_json.h"

// The model's own encoder vectors. They are no part of this repository: the tests read them from a
// folder beside it and are skipped where it is absent.

namespace baton::router {
namespace {

using nlohmann::ordered_json;
using testing::MessagesFromJson;

const std::string kFolder = std::string(BATON_SOURCE_DIR) + "/../shared/encoding/";

std::string ReadFile(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  EXPECT_TRUE(stream) << path;
  return {std::istreambuf_iterator<char>(stream), {}};
}

std::string Sha256(const std::string& text) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  EXPECT_EQ(EVP_Digest(text.data(), text.size(), digest, &size, EVP_sha256(), nullptr), 1);
  std::string hex;
  for (unsigned int i = 0; i < size; ++i) {
    char byte[3];
    std::snprintf(byte, sizeof byte, "%02x", digest[i]);
    hex += byte;
  }
  return hex;
}

class OfficialVectorsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kFolder + "prompts.json")) {
      GTEST_SKIP() << "no official vectors at " << kFolder;
    }
    const auto texts = ordered_json::parse(ReadFile(kFolder + "prompts.json"));
    prompts_.reasoning_effort_max = texts.at("effort_max").get<std::string>();
    prompts_.tools_before_schemas = texts.at("tools_head").get<std::string>();
    prompts_.tools_after_schemas = texts.at("tools_tail").get<std::string>();
    prompts_.response_format = texts.at("response_format_head").get<std::string>();
  }

  std::string Render(const std::vector<Message>& messages, const RenderOptions& options) {
    const auto segments = RenderPrompt(messages, prompts_, options);
    EXPECT_TRUE(segments.ok()) << segments.status();
    return segments.ok() ? PromptText(*segments) : "";
  }

  void ExpectVector(int number, ThinkingMode mode) {
    const std::string suffix = std::to_string(number);
    const auto input = ordered_json::parse(ReadFile(kFolder + "test_input_" + suffix + ".json"));
    auto messages = MessagesFromJson(input.is_array() ? input : input.at("messages"));
    if (input.is_object()) {
      for (const auto& tool : input.at("tools")) {
        LeadingSystemMessage(&messages).tools.push_back(tool.at("function"));
      }
    }
    EXPECT_EQ(Render(messages, {.thinking_mode = mode}),
              ReadFile(kFolder + "test_output_" + suffix + ".txt"));
  }

  ChatPrompts prompts_;
};

TEST_F(OfficialVectorsTest, ToolCallsInThinkingMode) { ExpectVector(1, ThinkingMode::kThinking); }

TEST_F(OfficialVectorsTest, EarlierReasoningIsDropped) { ExpectVector(2, ThinkingMode::kThinking); }

TEST_F(OfficialVectorsTest, DeveloperMessageWithToolsAndReminder) {
  ExpectVector(3, ThinkingMode::kThinking);
}

TEST_F(OfficialVectorsTest, ActionTaskInChatMode) { ExpectVector(4, ThinkingMode::kChat); }

TEST_F(OfficialVectorsTest, MaximumEffortHasTheOfficialHash) {
  const std::vector<Message> messages = {TextMessage(Role::kSystem, "S1"),
                                         TextMessage(Role::kUser, "U1")};
  const std::string prompt = Render(messages, {.thinking_mode = ThinkingMode::kThinking,
                                               .reasoning_effort = ReasoningEffort::kMax});
  EXPECT_EQ(prompt.size(), 545u);
  EXPECT_EQ(Sha256(prompt), "bed3592e43a4c4380fe58821847243caefbda9279e8fbff5500560007da6b221");
}

TEST_F(OfficialVectorsTest, ToolConversationHasTheOfficialHash) {
  const auto messages = MessagesFromJson(ordered_json::parse(R"json([
    {"role": "system", "content": "S1", "tools": [{"type": "function", "function": {
      "name": "get_x", "description": "d",
      "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}}]},
    {"role": "user", "content": "U1"},
    {"role": "assistant", "content": "", "reasoning_content": "R1", "tool_calls": [
      {"id": "c1", "function": {"name": "get_x",
                                "arguments": "{\"a\":\"v\",\"n\":3,\"l\":[1,2]}"}},
      {"id": "c2", "function": {"name": "get_y", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "c2", "content": "T2"},
    {"role": "tool", "tool_call_id": "c1", "content": "T1"},
    {"role": "user", "content": "U2"}])json"));
  const std::string prompt = Render(messages, {.thinking_mode = ThinkingMode::kThinking});
  EXPECT_EQ(prompt.size(), 1673u);
  EXPECT_EQ(Sha256(prompt), "3889648c4094420e07413a197eda18df3e111c1efaf2e4997b5a8bce30986f36");
}

}  // namespace
}  // namespace baton::router
