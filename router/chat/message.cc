#include "router/chat/message.h"

#include <iterator>
#include <utility>

namespace baton::router {
namespace {

constexpr std::string_view kRoleNames[] = {"system",    "developer", "user",
                                           "assistant", "tool",      "latest_reminder"};
constexpr std::string_view kTaskNames[] = {"action", "query", "authority",
                                           "domain", "title", "read_url"};

template <typename Enum, size_t n>
std::optional<Enum> FromName(const std::string_view (&names)[n], std::string_view name) {
  for (size_t i = 0; i < n; ++i) {
    if (names[i] == name) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

}  // namespace

std::optional<Role> ParseRole(std::string_view name) { return FromName<Role>(kRoleNames, name); }

std::string_view RoleName(Role role) { return kRoleNames[static_cast<size_t>(role)]; }

std::optional<Task> ParseTask(std::string_view name) { return FromName<Task>(kTaskNames, name); }

Message TextMessage(Role role, std::string text) {
  Message message;
  message.role = role;
  message.content.push_back({.type = "text", .text = std::move(text)});
  return message;
}

std::string ContentText(const std::vector<ContentPart>& content) {
  std::string text;
  for (size_t i = 0; i < content.size(); ++i) {
    if (i > 0) text += "\n\n";
    text += content[i].type == "text" ? content[i].text : "[Unsupported " + content[i].type + "]";
  }
  return text;
}

Message& LeadingSystemMessage(std::vector<Message>* messages) {
  if (messages->empty() || messages->front().role != Role::kSystem) {
    messages->insert(messages->begin(), TextMessage(Role::kSystem, ""));
  }
  return messages->front();
}

}  // namespace baton::router
