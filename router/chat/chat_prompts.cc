#include "router/chat/chat_prompts.h"

#include "absl/strings/str_cat.h"
#include "common/read_file.h"
#include "common/status_macros.h"
#include "router/chat/json_text.h"

namespace baton::router {

absl::StatusOr<ChatPrompts> LoadChatPrompts(const std::string& path) {
  BATON_ASSIGN_OR_RETURN(const std::string text, ReadRegularFile(path));
  const auto root = ParseJson(text);
  if (!root.ok() || !root->is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": expected a JSON object"));
  }
  ChatPrompts prompts;
  const struct {
    const char* key;
    std::string* text;
    bool optional = false;
  } wanted[] = {{"reasoning_effort_max", &prompts.reasoning_effort_max},
                {"reasoning_effort_high", &prompts.reasoning_effort_high, true},
                {"tools_before_schemas", &prompts.tools_before_schemas},
                {"tools_after_schemas", &prompts.tools_after_schemas},
                {"response_format", &prompts.response_format}};
  for (const auto& [key, out, optional] : wanted) {
    const auto it = root->find(key);
    if (optional && it == root->end()) continue;
    if (it == root->end() || !it->is_string()) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": expected a string \"", key, "\""));
    }
    *out = it->get<std::string>();
  }
  return prompts;
}

}  // namespace baton::router
