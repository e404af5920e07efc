#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace baton::cli {

// The fixed texts of a model's chat format, under the keys of chat_prompts.json.
struct ChatPromptTexts {
  std::string reasoning_effort_high;  // empty: such an effort adds nothing
  std::string reasoning_effort_max;
  std::string tools_before_schemas;
  std::string tools_after_schemas;
  std::string response_format;
};

// SHA-256 of each, in hexadecimal.
struct ChatPromptDigests {
  std::string reasoning_effort_max;             // where it is the only effort with a text,
  std::string reasoning_effort_high;            // and where
  std::string reasoning_effort_max_above_high;  // both have one
  std::string tools_before_schemas;
  std::string tools_after_schemas;
  std::string response_format;
};

// Those that DeepSeek-V4 was trained with, earlier and later.
const ChatPromptDigests& OfficialDigests();

// The texts as encoding_dsv4.py, given as source, puts them into a prompt: its templates with the
// tokens filled in, cut where schemas go. INVALID_ARGUMENT names what the source lacks;
// FAILED_PRECONDITION the text whose digest is another: such a model was trained with other words.
absl::StatusOr<ChatPromptTexts> ImportChatPrompts(absl::string_view source,
                                                  const ChatPromptDigests& expected);

// The content of chat_prompts.json.
std::string ToJson(const ChatPromptTexts& texts);

}  // namespace baton::cli
