#include "tests/router/chat/messages_from_json.h"

#include <string>

namespace baton::router::testing {
namespace {

using nlohmann::ordered_json;

std::string StringAt(const ordered_json& object, const char* key) {
  return object.contains(key) && object[key].is_string() ? object[key].get<std::string>() : "";
}

std::vector<ContentPart> ContentFromJson(const ordered_json& content) {
  std::vector<ContentPart> parts;
  if (content.is_string()) parts.push_back({.type = "text", .text = content.get<std::string>()});
  if (content.is_array()) {
    for (const auto& part : content) {
      parts.push_back({.type = StringAt(part, "type"), .text = StringAt(part, "text")});
    }
  }
  return parts;
}

Message MessageFromJson(const ordered_json& json) {
  Message message;
  message.role = ParseRole(json.at("role").get<std::string>()).value();
  if (json.contains("content")) message.content = ContentFromJson(json["content"]);
  message.reasoning_content = StringAt(json, "reasoning_content");
  message.tool_call_id = StringAt(json, "tool_call_id");
  if (json.contains("task")) message.task = ParseTask(json["task"].get<std::string>()).value();
  message.without_eos = json.value("wo_eos", false);
  if (json.contains("response_format")) message.response_format = json["response_format"];
  for (const auto& tool : json.value("tools", ordered_json::array())) {
    message.tools.push_back(tool.at("function"));
  }
  for (const auto& call : json.value("tool_calls", ordered_json::array())) {
    message.tool_calls.push_back({.id = StringAt(call, "id"),
                                  .name = StringAt(call.at("function"), "name"),
                                  .arguments = StringAt(call.at("function"), "arguments")});
  }
  return message;
}

}  // namespace

std::vector<Message> MessagesFromJson(const ordered_json& list) {
  std::vector<Message> messages;
  for (const auto& json : list) messages.push_back(MessageFromJson(json));
  return messages;
}

}  // namespace baton::router::testing
