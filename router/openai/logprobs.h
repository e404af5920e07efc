#pragma once

#include <span>

#include "nlohmann/json.hpp"
#include "router/dispatch/generation_events.h"
#include "router/tokenizer/tokenizer.h"

// The member "logprobs" of a choice. A token that is no well-formed UTF-8 by itself, as those that
// one emoji is made of, is spelled with \x and two hexadecimal digits for each byte that is not.

namespace baton::router {

// Of a chat: {"content": [...], "refusal": null}. Tokens before the end of thinking stand in a
// member "reasoning_content" that is there if they are. -infinity is given as -9999.
nlohmann::ordered_json ChatLogprobs(std::span<const AnswerToken> tokens,
                                    const Tokenizer& tokenizer);

// Of a completion: tokens, token_logprobs, top_logprobs and text_offset, one entry a token each.
// The chosen token is always among its top_logprobs; offsets count the characters of "text".
nlohmann::ordered_json CompletionLogprobs(std::span<const AnswerToken> tokens,
                                          const Tokenizer& tokenizer);

}  // namespace baton::router
