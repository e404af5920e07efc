#include "router/chat/markup.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace baton::router {

std::string_view TaskToken(Task task) {
  switch (task) {
    case Task::kAction:
      return "<｜action｜>";
    case Task::kQuery:
      return "<｜query｜>";
    case Task::kAuthority:
      return "<｜authority｜>";
    case Task::kDomain:
      return "<｜domain｜>";
    case Task::kTitle:
      return "<｜title｜>";
    case Task::kReadUrl:
      return "<｜read_url｜>";
  }
  return {};
}

absl::StatusOr<MarkupIds> FindMarkup(const Tokenizer& tokenizer) {
  MarkupIds ids;
  const struct {
    std::string_view content;
    int32_t* id;
  } wanted[] = {{kBosToken, &ids.bos},
                {kEosToken, &ids.eos},
                {kUserToken, &ids.user},
                {kAssistantToken, &ids.assistant},
                {kThinkStartToken, &ids.think_start},
                {kThinkEndToken, &ids.think_end},
                {kDsmlToken, &ids.dsml}};
  for (const auto& [content, id] : wanted) {
    const auto found = tokenizer.AddedTokenId(content);
    if (!found.has_value()) {
      return absl::NotFoundError(
          absl::StrCat("the tokenizer lacks the control token ", std::string(content)));
    }
    *id = *found;
  }
  return ids;
}

}  // namespace baton::router
