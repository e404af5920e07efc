#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "router/chat/message.h"
#include "router/tokenizer/tokenizer.h"

// The control tokens and tags of the chat format.

namespace baton::router {

inline constexpr std::string_view kBosToken = "<｜begin▁of▁sentence｜>";
inline constexpr std::string_view kEosToken = "<｜end▁of▁sentence｜>";
inline constexpr std::string_view kUserToken = "<｜User｜>";
inline constexpr std::string_view kAssistantToken = "<｜Assistant｜>";
inline constexpr std::string_view kLatestReminderToken = "<｜latest_reminder｜>";
inline constexpr std::string_view kThinkStartToken = "<think>";
inline constexpr std::string_view kThinkEndToken = "</think>";
inline constexpr std::string_view kDsmlToken =
    "｜DSML｜";  // stands inside tags: <｜DSML｜invoke ...>

std::string_view TaskToken(Task task);

// Ids of the control tokens that every model of the family has.
struct MarkupIds {
  int32_t bos, eos, user, assistant, think_start, think_end, dsml;
};

// NotFound, naming the token, when the tokenizer lacks one.
absl::StatusOr<MarkupIds> FindMarkup(const Tokenizer& tokenizer);

}  // namespace baton::router
