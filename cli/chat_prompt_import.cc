#include "cli/chat_prompt_import.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "cli/python_strings.h"
#include "cli/sha256.h"
#include "common/status_macros.h"
#include "nlohmann/json.hpp"

namespace baton::cli {
namespace {

using Strings = absl::flat_hash_map<std::string, std::string>;

absl::StatusOr<std::string> Find(const Strings& strings, const char* name) {
  const auto found = strings.find(name);
  if (found == strings.end()) {
    return absl::InvalidArgumentError(absl::StrCat("no text is assigned to ", name));
  }
  return found->second;
}

// The template before and after the placeholder.
absl::StatusOr<std::pair<std::string, std::string>> Cut(const Strings& strings, const char* name,
                                                        const char* placeholder) {
  BATON_ASSIGN_OR_RETURN(const std::string text, Find(strings, name));
  const std::vector<std::string> parts = absl::StrSplit(text, placeholder);
  if (parts.size() != 2) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " has ", parts.size() - 1, " times ", placeholder, ", expected 1"));
  }
  return std::pair(parts[0], parts[1]);
}

absl::Status Check(const char* key, const std::string& text, const std::string& expected) {
  const std::string digest = Sha256(text);
  if (digest == expected) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(key, ", ", text.size(), " bytes, has SHA-256 ",
                                                    digest, ", expected ", expected));
}

// Earlier sources have a text for the highest effort alone, later ones a dictionary by effort.
absl::Status ImportEfforts(const Strings& strings, const ChatPromptDigests& expected,
                           ChatPromptTexts& texts) {
  if (!strings.contains("REASONING_EFFORT_PROMPTS[max]")) {
    BATON_ASSIGN_OR_RETURN(texts.reasoning_effort_max, Find(strings, "REASONING_EFFORT_MAX"));
    return Check("reasoning_effort_max", texts.reasoning_effort_max, expected.reasoning_effort_max);
  }
  BATON_ASSIGN_OR_RETURN(const std::string low, Find(strings, "REASONING_EFFORT_PROMPTS[low]"));
  if (!low.empty()) {
    return absl::InvalidArgumentError("REASONING_EFFORT_PROMPTS[low] is not empty");
  }
  BATON_ASSIGN_OR_RETURN(texts.reasoning_effort_high,
                         Find(strings, "REASONING_EFFORT_PROMPTS[high]"));
  BATON_ASSIGN_OR_RETURN(texts.reasoning_effort_max,
                         Find(strings, "REASONING_EFFORT_PROMPTS[max]"));
  BATON_RETURN_IF_ERROR(
      Check("reasoning_effort_high", texts.reasoning_effort_high, expected.reasoning_effort_high));
  return Check("reasoning_effort_max", texts.reasoning_effort_max,
               expected.reasoning_effort_max_above_high);
}

}  // namespace

const ChatPromptDigests& OfficialDigests() {
  static const ChatPromptDigests digests = {
      .reasoning_effort_max = "f7a24f3b3050d4a83781e9b755b316aae2ec1d9dc87562541d90bcb04d7350f7",
      .reasoning_effort_high = "f7a24f3b3050d4a83781e9b755b316aae2ec1d9dc87562541d90bcb04d7350f7",
      .reasoning_effort_max_above_high =
          "53fb31b8392ec5b4a926481943efc67636748f137c1a49d493a7af4d4fa55d2c",
      .tools_before_schemas = "c7c9042638154a237b5d1bd48be772374a35a4d24c5cacfd1ffbd92703da329c",
      .tools_after_schemas = "690702850fe256512cb1ee67c4e436ecb3e735c71ebee77ca45ff357a75fb5a7",
      .response_format = "5200f58413f49f3957c43beddbc97bead023232cb5934fad0c1997c30c139112"};
  return digests;
}

absl::StatusOr<ChatPromptTexts> ImportChatPrompts(absl::string_view source,
                                                  const ChatPromptDigests& expected) {
  BATON_ASSIGN_OR_RETURN(const Strings strings, TopLevelStrings(source));
  std::vector<std::pair<std::string, std::string>> tokens;
  for (const char* name : {"dsml_token", "thinking_start_token", "thinking_end_token"}) {
    BATON_ASSIGN_OR_RETURN(std::string token, Find(strings, name));
    tokens.emplace_back(absl::StrCat("{", name, "}"), std::move(token));
  }
  ChatPromptTexts texts;
  BATON_RETURN_IF_ERROR(ImportEfforts(strings, expected, texts));
  BATON_ASSIGN_OR_RETURN(const auto tools, Cut(strings, "TOOLS_TEMPLATE", "{tool_schemas}"));
  texts.tools_before_schemas = absl::StrReplaceAll(tools.first, tokens);
  texts.tools_after_schemas = absl::StrReplaceAll(tools.second, tokens);
  BATON_ASSIGN_OR_RETURN(const auto format, Cut(strings, "response_format_template", "{schema}"));
  texts.response_format = format.first;
  if (!format.second.empty()) {
    return absl::InvalidArgumentError("response_format_template does not end with {schema}");
  }

  BATON_RETURN_IF_ERROR(
      Check("tools_before_schemas", texts.tools_before_schemas, expected.tools_before_schemas));
  BATON_RETURN_IF_ERROR(
      Check("tools_after_schemas", texts.tools_after_schemas, expected.tools_after_schemas));
  BATON_RETURN_IF_ERROR(Check("response_format", texts.response_format, expected.response_format));
  return texts;
}

std::string ToJson(const ChatPromptTexts& texts) {
  nlohmann::ordered_json json = {{"reasoning_effort_max", texts.reasoning_effort_max},
                                 {"tools_before_schemas", texts.tools_before_schemas},
                                 {"tools_after_schemas", texts.tools_after_schemas},
                                 {"response_format", texts.response_format}};
  if (!texts.reasoning_effort_high.empty()) {
    json["reasoning_effort_high"] = texts.reasoning_effort_high;
  }
  constexpr int kIndent = 2;
  return json.dump(kIndent) + "\n";
}

}  // namespace baton::cli
