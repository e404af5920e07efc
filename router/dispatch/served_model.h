#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "router/chat/chat_prompts.h"
#include "router/chat/markup.h"
#include "router/tokenizer/tokenizer.h"

namespace baton::router {

// What the router needs of a model directory: no weights. Immutable.
struct ServedModel {
  std::string name;
  Tokenizer tokenizer;
  MarkupIds markup;        // control tokens of the chat format
  int32_t vocab_size = 0;  // token ids of clients must be below
  // From chat_prompts.json; without that file, requests that need its texts are refused.
  std::optional<ChatPrompts> chat_prompts = {};
  // From generation_config.json, where the model's authors recommend something.
  float temperature = 1.0f;
  float top_p = 1.0f;
  int32_t top_k = 0;

  // Reads tokenizer.json, config.json and, if present, the other two. An empty `name` stands for
  // the directory's. Errors name the file and the field.
  static absl::StatusOr<ServedModel> Load(const std::string& directory, std::string name);
};

}  // namespace baton::router
