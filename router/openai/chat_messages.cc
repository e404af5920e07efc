#include "router/openai/chat_messages.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace baton::router {
namespace {

// `read` is called with a reader for each object of the array.
template <typename ReadElement>
void ForEachObject(FieldReader& fields, const std::string& key, ReadElement read) {
  const Json* list = fields.Find(key);
  if (list == nullptr) return;
  if (!list->is_array()) {
    fields.FailType(key, *list, "an array");
    return;
  }
  for (size_t i = 0; i < list->size() && !fields.error(); ++i) {
    const std::string path = absl::StrCat(fields.PathTo(key), "[", i, "]");
    FieldReader element((*list)[i], path);
    if ((*list)[i].is_object()) {
      read(element);
    } else {
      element.FailType("", (*list)[i], "an object");
    }
    fields.Adopt(element.error());
  }
}

void ReadContent(FieldReader& fields, std::vector<ContentPart>* content) {
  const Json* field = fields.Find("content");
  if (field == nullptr) return;
  if (field->is_string()) {
    content->push_back({.text = field->get<std::string>()});
    return;
  }
  if (!field->is_array()) {
    fields.FailType("content", *field, "a string or an array");
    return;
  }
  ForEachObject(fields, "content", [&](FieldReader& part) {
    ContentPart& added = content->emplace_back();
    added.type.clear();
    part.String("type", &added.type);
    part.String("text", &added.text);
    if (added.type != "text") {
      part.Fail("type", absl::StrCat("is '", added.type, "', only text is supported"));
    } else if (part.Find("text") == nullptr) {
      part.FailMissing("text");
    }
  });
}

void ReadToolCalls(FieldReader& fields, std::vector<ToolCall>* calls) {
  ForEachObject(fields, "tool_calls", [&](FieldReader& call) {
    ToolCall& added = calls->emplace_back();
    call.String("id", &added.id);
    call.Unsupported("type", "function");
    call.Ignore({"index"});
    const Json* function = call.Find("function");
    if (function == nullptr || !function->is_object()) {
      call.Fail("function", "is missing or not an object");
      return;
    }
    FieldReader reader(*function, call.PathTo("function"));
    reader.String("name", &added.name);
    reader.String("arguments", &added.arguments);
    if (added.name.empty()) reader.FailMissing("name");
    call.Adopt(reader.error());
  });
}

void ReadMessage(FieldReader& fields, std::vector<Message>* messages) {
  Message& message = messages->emplace_back();
  std::string role;
  fields.String("role", &role);
  const std::optional<Role> known = ParseRole(role);
  if (role.empty()) fields.FailMissing("role");
  if (!known) {
    fields.Fail("role", absl::StrCat("is '", role,
                                     "', expected system, developer, user, assistant, tool or "
                                     "latest_reminder"));
    return;
  }
  message.role = *known;
  ReadContent(fields, &message.content);
  fields.Ignore({"name", "refusal", "annotations"});
  for (const char* part_of_the_turn : {"audio", "function_call"})
    fields.Unsupported(part_of_the_turn);
  if (message.role == Role::kAssistant) {
    fields.String("reasoning_content", &message.reasoning_content);
    ReadToolCalls(fields, &message.tool_calls);
  } else if (message.content.empty()) {
    fields.FailMissing("content");
  }
  if (message.role == Role::kTool) fields.String("tool_call_id", &message.tool_call_id);
  fields.RejectUnknown();
}

std::vector<Json> ReadTools(FieldReader& fields) {
  std::vector<Json> functions;
  ForEachObject(fields, "tools", [&](FieldReader& tool) {
    tool.Unsupported("type", "function");
    const Json* function = tool.Find("function");
    if (function == nullptr || !function->is_object() ||
        !function->value("name", Json()).is_string()) {
      tool.Fail("function", "must be an object with a name");
      return;
    }
    functions.push_back(*function);
    tool.RejectUnknown();
  });
  const Json* choice = fields.Find("tool_choice");
  if (choice != nullptr && *choice == "none") functions.clear();
  if (choice != nullptr && *choice != "none" && *choice != "auto") {
    fields.Fail("tool_choice", "must be none or auto: calls cannot be enforced");
  }
  fields.Ignore({"parallel_tool_calls"});
  return functions;
}

void ReadThinking(FieldReader& fields, ChatInput* chat) {
  std::string effort;
  fields.String("reasoning_effort", &effort);
  if (effort == "low" || effort == "medium") {
    chat->effort = ReasoningEffort::kLow;
  } else if (effort == "high") {
    chat->effort = ReasoningEffort::kHigh;
  } else if (effort == "max" || effort == "xhigh") {
    chat->effort = ReasoningEffort::kMax;
  } else if (!effort.empty() && effort != "none" && effort != "minimal") {
    fields.Fail("reasoning_effort", absl::StrCat("is '", effort,
                                                 "', expected none, minimal, low, medium, high, "
                                                 "xhigh or max"));
  }
  chat->thinking = chat->effort != ReasoningEffort::kNone;

  const Json* kwargs = fields.Find("chat_template_kwargs");
  if (kwargs == nullptr) return;
  if (!kwargs->is_object()) {
    fields.FailType("chat_template_kwargs", *kwargs, "an object");
    return;
  }
  FieldReader reader(*kwargs, "chat_template_kwargs");
  reader.Boolean("thinking", &chat->thinking);
  reader.RejectUnknown();
  fields.Adopt(reader.error());
}

}  // namespace

ChatInput ReadChat(FieldReader& fields) {
  ChatInput chat;
  ForEachObject(fields, "messages",
                [&](FieldReader& message) { ReadMessage(message, &chat.messages); });
  if (fields.Find("messages") == nullptr) fields.FailMissing("messages");
  if (chat.messages.empty()) {
    fields.Fail("messages", "must hold at least one message", "empty_array");
  }
  ReadThinking(fields, &chat);
  std::vector<Json> tools = ReadTools(fields);
  if (!tools.empty()) LeadingSystemMessage(&chat.messages).tools = std::move(tools);
  return chat;
}

}  // namespace baton::router
