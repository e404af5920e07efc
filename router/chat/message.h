#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "nlohmann/json.hpp"

// A conversation as the model's chat format knows it. Plain data; the HTTP side fills it from a
// client's request, RenderPrompt turns it into a prompt.

namespace baton::router {

enum class Role {
  kSystem,
  kDeveloper,  // a user turn with instructions and tools of its own
  kUser,
  kAssistant,
  kTool,  // the result of one call of the assistant message before
  kLatestReminder,
};

// "system", "developer", "user", "assistant", "tool", "latest_reminder"; nullopt for others.
std::optional<Role> ParseRole(std::string_view name);
std::string_view RoleName(Role role);

// Classification tasks: the answer to the message is a short label, opened by a token of its own.
enum class Task { kAction, kQuery, kAuthority, kDomain, kTitle, kReadUrl };

// "action", "query", "authority", "domain", "title", "read_url"; nullopt for others.
std::optional<Task> ParseTask(std::string_view name);

// One part of a message's content. Parts that are not text reach the model as a note that they are
// not supported.
struct ContentPart {
  std::string type = "text";
  std::string text;
};

struct ToolCall {
  std::string id;  // pairs the call with its result; may be empty
  std::string name;
  std::string arguments;  // JSON object as text; anything else is passed on as one string argument
};

struct Message {
  Role role = Role::kUser;
  std::vector<ContentPart> content;           // empty: null content
  std::string reasoning_content;              // assistant
  std::vector<ToolCall> tool_calls;           // assistant
  std::string tool_call_id;                   // tool
  std::vector<nlohmann::ordered_json> tools;  // system, developer: the "function" objects
  std::optional<nlohmann::ordered_json> response_format;  // system, developer: schema of the answer
  std::optional<Task> task;
  bool without_eos = false;  // assistant: leave the turn open, so that the model continues it
};

// A message with plain text content.
Message TextMessage(Role role, std::string text);

// The parts as one text: joined by an empty line, other kinds as "[Unsupported <type>]".
std::string ContentText(const std::vector<ContentPart>& content);

// The system message that opens the conversation, put there (empty) if the first message is none:
// where a request's own tools and response format go.
Message& LeadingSystemMessage(std::vector<Message>* messages);

}  // namespace baton::router
