#pragma once

#include "router/dispatch/generation_request.h"
#include "router/openai/field_reader.h"

namespace baton::router {

// Reads what makes a chat request a conversation: messages, tools, tool_choice,
// chat_template_kwargs.thinking and reasoning_effort. What is wrong becomes the reader's error.
//
// Thinking is off unless asked for: by chat_template_kwargs {"thinking": true}, or by a
// reasoning_effort other than "none" and "minimal" where the former says nothing. "max" (or
// "xhigh") adds the model's own instruction to think hard; the other levels are alike.
ChatInput ReadChat(FieldReader& fields);

}  // namespace baton::router
