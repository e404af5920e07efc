#include "router/openai/logprobs.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "router/tokenizer/utf8.h"

namespace baton::router {
namespace {

using Json = nlohmann::ordered_json;

constexpr float kLeast = -9999;  // JSON has no infinity

float Finite(float logprob) { return std::max(logprob, kLeast); }

std::string Spelled(std::string_view bytes) {
  std::string text;
  for (size_t pos = 0; pos < bytes.size();) {
    const Utf8Unit unit = NextUtf8(bytes, pos);
    for (const char byte : bytes.substr(pos, unit.bytes)) {
      if (unit.kind == Utf8Unit::Kind::kValid) {
        text.push_back(byte);
      } else {
        absl::StrAppendFormat(&text, "\\x%02x", static_cast<uint8_t>(byte));
      }
    }
    pos += unit.bytes;
  }
  return text;
}

// Completions mark tokens that are spelled in bytes.
std::string SpelledInCompletion(std::string_view bytes) {
  return absl::StrCat(IsValidUtf8(bytes) ? "" : "bytes:", Spelled(bytes));
}

Json Entry(const TokenLogprob& entry, const Tokenizer& tokenizer) {
  const std::string_view bytes = tokenizer.TokenBytes(entry.token);
  Json numbers = Json::array();
  for (const char byte : bytes) numbers.push_back(static_cast<uint8_t>(byte));
  return {
      {"token", Spelled(bytes)}, {"logprob", Finite(entry.logprob)}, {"bytes", std::move(numbers)}};
}

}  // namespace

Json ChatLogprobs(std::span<const AnswerToken> tokens, const Tokenizer& tokenizer) {
  Json content = Json::array();
  Json reasoning = Json::array();
  for (const AnswerToken& token : tokens) {
    Json entry = Entry(token.logprobs.chosen, tokenizer);
    Json& top = entry["top_logprobs"] = Json::array();
    for (const TokenLogprob& other : token.logprobs.top) top.push_back(Entry(other, tokenizer));
    (token.is_reasoning ? reasoning : content).push_back(std::move(entry));
  }
  Json logprobs = {{"content", std::move(content)}, {"refusal", nullptr}};
  if (!reasoning.empty()) logprobs["reasoning_content"] = std::move(reasoning);
  return logprobs;
}

Json CompletionLogprobs(std::span<const AnswerToken> tokens, const Tokenizer& tokenizer) {
  const auto spell = [&](const TokenLogprob& entry) {
    return SpelledInCompletion(tokenizer.TokenBytes(entry.token));
  };
  Json logprobs;
  for (const char* member : {"tokens", "token_logprobs", "top_logprobs", "text_offset"}) {
    logprobs[member] = Json::array();
  }
  for (const AnswerToken& token : tokens) {
    Json top = Json::object();
    // Of tokens that read the same the likeliest is meant.
    for (const TokenLogprob& entry : token.logprobs.top) {
      top.emplace(spell(entry), Finite(entry.logprob));
    }
    const TokenLogprob& chosen = token.logprobs.chosen;
    top.emplace(spell(chosen), Finite(chosen.logprob));
    logprobs["tokens"].push_back(spell(chosen));
    logprobs["token_logprobs"].push_back(Finite(chosen.logprob));
    logprobs["top_logprobs"].push_back(std::move(top));
    logprobs["text_offset"].push_back(token.text_offset);
  }
  return logprobs;
}

}  // namespace baton::router
