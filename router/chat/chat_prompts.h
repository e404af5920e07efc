#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace baton::router {

// The fixed texts of the chat format. They are part of a model, not of this program: they are read
// from chat_prompts.json in the model's directory, keys as below.
struct ChatPrompts {
  std::string reasoning_effort_max;        // opens a thinking prompt of effort "max"
  std::string reasoning_effort_high = {};  // the same of "high"; earlier models have none: empty
  std::string tools_before_schemas;        // then one JSON schema a line, then
  std::string tools_after_schemas;
  std::string response_format;  // then the schema of the answer
};

// Errors name the file and the key.
absl::StatusOr<ChatPrompts> LoadChatPrompts(const std::string& path);

}  // namespace baton::router
