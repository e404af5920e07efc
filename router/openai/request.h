#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <variant>

#include "router/dispatch/generation_request.h"
#include "router/openai/error.h"

// Bodies of POST /v1/chat/completions and /v1/completions. Fields that would change the answer but
// are not implemented, and fields nobody knows, are errors that name them: a client must never get
// another answer than it asked for without being told.

namespace baton::router {

struct CompletionRequest {
  GenerationRequest generation;
  size_t choices = 1;  // "n", at most kMaxChoices
  // Of stream_options.
  bool include_usage = false;
  bool continuous_usage_stats = false;
  FieldNames field_names = {};  // as this client has them, for errors that are found later
};

std::variant<CompletionRequest, ApiError> ParseChatCompletion(std::string_view body);
std::variant<CompletionRequest, ApiError> ParseCompletion(std::string_view body);

}  // namespace baton::router
