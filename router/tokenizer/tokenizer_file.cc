#include "router/tokenizer/tokenizer_file.h"

#include <algorithm>
#include <array>
#include <optional>
#include <sstream>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/status_macros.h"
#include "nlohmann/json.hpp"
#include "router/tokenizer/pre_tokenizer.h"
#include "router/tokenizer/utf8.h"

namespace baton::router {
namespace {

using nlohmann::json;

template <typename... Parts>
absl::Status Invalid(const Parts&... parts) {
  std::ostringstream message;
  (message << ... << parts);
  return absl::InvalidArgumentError(message.str());
}

// The member, or null when absent. Precondition: `object` is a JSON object.
const json& Member(const json& object, const char* key) {
  static const json* const null = new json();
  const auto it = object.find(key);
  return it == object.end() ? *null : *it;
}

bool HasType(const json& value, std::string_view type) {
  if (!value.is_object()) return false;
  const json& name = Member(value, "type");
  return name.is_string() && name.get_ref<const std::string&>() == type;
}

bool IsFalse(const json& value) { return value.is_boolean() && !value.get<bool>(); }

// What stands in the file instead of what was expected. Not the whole of it: writing out JSON
// recurses, and a hostile file may be nested very deeply.
std::string Excerpt(const json& value) {
  if (value.is_structured()) {
    const bool is_typed = value.is_object() && Member(value, "type").is_string();
    return is_typed ? Member(value, "type").get<std::string>() : value.type_name();
  }
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true);
  if (text.size() > 120) text = absl::StrCat(text.substr(0, 117), "...");
  return text;
}

// Byte-level BPE files spell every byte as a printable character (the GPT-2 map): printable Latin-1
// as itself, the other 68 bytes as U+0100 and up. Index = code point, value = byte or -1.
std::array<int16_t, 324> BuildByteOfCharacter() {
  std::array<int16_t, 324> byte_of;
  byte_of.fill(-1);
  int next_unprintable = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) ||
                           (byte >= 0xAE && byte <= 0xFF);
    byte_of[printable ? byte : next_unprintable++] = static_cast<int16_t>(byte);
  }
  return byte_of;
}

// The bytes behind a spelling; nullopt when it has a character outside the map.
std::optional<std::string> BytesOfSpelling(std::string_view spelling) {
  static const std::array<int16_t, 324> byte_of = BuildByteOfCharacter();
  std::string bytes;
  for (size_t pos = 0; pos < spelling.size();) {
    const Utf8Unit unit = NextUtf8(spelling, pos);
    if (unit.kind != Utf8Unit::Kind::kValid || unit.code_point >= byte_of.size() ||
        byte_of[unit.code_point] < 0) {
      return std::nullopt;
    }
    bytes.push_back(static_cast<char>(byte_of[unit.code_point]));
    pos += unit.bytes;
  }
  return bytes;
}

// A pattern with escapes undone that do not change its meaning; files differ in those.
std::string CanonicalPattern(std::string_view pattern) {
  std::string result;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '\\' && i + 1 < pattern.size()) {
      const char escaped = pattern[++i];
      if (escaped == 'r') {
        result.push_back('\r');
      } else if (escaped == 'n') {
        result.push_back('\n');
      } else if (escaped == '"') {
        result.push_back('"');
      } else {
        result.append({'\\', escaped});
      }
    } else {
      result.push_back(pattern[i]);
    }
  }
  return result;
}

absl::Status CheckPreTokenizer(const json& pre_tokenizer) {
  if (!HasType(pre_tokenizer, "Sequence") || !Member(pre_tokenizer, "pretokenizers").is_array()) {
    return Invalid("pre_tokenizer: expected a Sequence of three Splits and ByteLevel, got ",
                   Excerpt(pre_tokenizer));
  }
  const json& stages = Member(pre_tokenizer, "pretokenizers");
  constexpr std::string_view kPatterns[] = {kNumberPattern, kCjkPattern, kWordPattern};
  if (stages.size() != std::size(kPatterns) + 1) {
    return Invalid("pre_tokenizer: expected 4 stages, got ", stages.size());
  }
  for (size_t i = 0; i < std::size(kPatterns); ++i) {
    const json& stage = stages[i];
    if (!HasType(stage, "Split") || Member(stage, "behavior") != "Isolated" ||
        !IsFalse(Member(stage, "invert")) || !Member(stage, "pattern").is_object()) {
      return Invalid("pre_tokenizer stage ", i, ": expected an Isolated Split, got ",
                     Excerpt(stage));
    }
    const json& regex = Member(Member(stage, "pattern"), "Regex");
    if (!regex.is_string() ||
        CanonicalPattern(regex.get_ref<const std::string&>()) != CanonicalPattern(kPatterns[i])) {
      return Invalid("pre_tokenizer stage ", i, ": only the pattern ", kPatterns[i],
                     " is implemented, got ", Excerpt(regex));
    }
  }
  const json& byte_level = stages.back();
  if (!HasType(byte_level, "ByteLevel") || !IsFalse(Member(byte_level, "add_prefix_space")) ||
      !IsFalse(Member(byte_level, "use_regex"))) {
    return Invalid(
        "pre_tokenizer stage 3: expected ByteLevel without prefix space and without "
        "its own regex, got ",
        Excerpt(byte_level));
  }
  return absl::OkStatus();
}

// Everything around the model must be absent or without influence on ids and text.
absl::Status CheckPipeline(const json& root) {
  const json& normalizer = Member(root, "normalizer");
  const bool is_empty_sequence = HasType(normalizer, "Sequence") &&
                                 Member(normalizer, "normalizers").is_array() &&
                                 Member(normalizer, "normalizers").empty();
  if (!normalizer.is_null() && !is_empty_sequence) {
    return Invalid("normalizer: none is supported, got ", Excerpt(normalizer));
  }
  for (const char* key : {"truncation", "padding"}) {
    if (!Member(root, key).is_null()) {
      return Invalid(key, ": not supported, got ", Excerpt(Member(root, key)));
    }
  }
  const json& post_processor = Member(root, "post_processor");
  if (!post_processor.is_null() && !HasType(post_processor, "ByteLevel")) {
    return Invalid("post_processor: only ByteLevel is supported, got ", Excerpt(post_processor));
  }
  if (!HasType(Member(root, "decoder"), "ByteLevel")) {
    return Invalid("decoder: only ByteLevel is supported, got ", Excerpt(Member(root, "decoder")));
  }
  return CheckPreTokenizer(Member(root, "pre_tokenizer"));
}

absl::StatusOr<int32_t> TokenId(const json& id, const std::string& where) {
  if (!id.is_number_integer() || id < 0 || id > kMaxTokenId) {
    return Invalid(where, ": expected a token id in 0..", kMaxTokenId, ", got ", Excerpt(id));
  }
  return id.get<int32_t>();
}

absl::StatusOr<AddedToken> ParseAddedToken(const json& entry, size_t index) {
  const std::string where = absl::StrCat("added_tokens[", index, "]");
  if (!entry.is_object() || !Member(entry, "content").is_string()) {
    return Invalid(where, ": expected an object with a string content, got ", Excerpt(entry));
  }
  AddedToken token{.content = Member(entry, "content").get<std::string>()};
  if (token.content.empty()) return Invalid(where, ": content is empty");
  BATON_ASSIGN_OR_RETURN(token.id, TokenId(Member(entry, "id"), absl::StrCat(where, ".id")));
  for (const char* flag : {"single_word", "lstrip", "rstrip"}) {
    if (!IsFalse(Member(entry, flag)) && !Member(entry, flag).is_null()) {
      return Invalid(where, " (", token.content, "): ", flag, " is not supported");
    }
  }
  const auto flag = [&](const char* key, bool* out) {
    const json& value = Member(entry, key);
    if (value.is_boolean()) *out = value.get<bool>();
    return value.is_boolean() || value.is_null() ? absl::OkStatus()
                                                 : Invalid(where, ".", key, ": expected a boolean");
  };
  BATON_RETURN_IF_ERROR(flag("special", &token.special));
  BATON_RETURN_IF_ERROR(flag("normalized", &token.normalized));
  return token;
}

absl::Status ParseAddedTokens(const json& list, TokenizerFile* file) {
  if (list.is_null()) return absl::OkStatus();
  if (!list.is_array()) return Invalid("added_tokens: expected an array");
  absl::flat_hash_set<std::string> contents;
  absl::flat_hash_set<int32_t> ids;
  for (size_t i = 0; i < list.size(); ++i) {
    BATON_ASSIGN_OR_RETURN(AddedToken token, ParseAddedToken(list[i], i));
    if (!contents.insert(token.content).second || !ids.insert(token.id).second) {
      return Invalid("added_tokens[", i, "]: content \"", token.content, "\" or id ", token.id,
                     " was added before");
    }
    file->added_tokens.push_back(std::move(token));
  }
  return absl::OkStatus();
}

absl::Status ParseVocabulary(const json& vocab, TokenizerFile* file) {
  if (!vocab.is_object()) return Invalid("model.vocab: expected an object");
  absl::flat_hash_map<std::string_view, int32_t> added_ids;
  absl::flat_hash_map<int32_t, std::string> spelling_of;  // every id of the file
  for (const AddedToken& token : file->added_tokens) {
    added_ids.emplace(token.content, token.id);
    spelling_of.emplace(token.id, token.content);
  }
  absl::flat_hash_set<std::string> seen_bytes;
  for (const auto& [spelling, value] : vocab.items()) {
    BATON_ASSIGN_OR_RETURN(const int32_t id,
                           TokenId(value, absl::StrCat("model.vocab[\"", spelling, "\"]")));
    const auto [holder, is_new] = spelling_of.emplace(id, spelling);
    if (!is_new && holder->second != spelling) {
      return Invalid("model.vocab: id ", id, " belongs to both \"", spelling, "\" and \"",
                     holder->second, "\"");
    }
    const auto added = added_ids.find(spelling);
    if (added != added_ids.end()) {
      if (added->second == id) continue;
      return Invalid("model.vocab: \"", spelling, "\" has id ", id, " here and ", added->second,
                     " in added_tokens");
    }
    std::optional<std::string> bytes = BytesOfSpelling(spelling);
    if (!bytes.has_value() || bytes->empty()) {
      return Invalid("model.vocab: \"", spelling, "\" is not in the byte-level alphabet");
    }
    file->bpe.tokens.push_back({*std::move(bytes), id});
  }
  for (const auto& [id, spelling] : spelling_of) {
    file->vocab_size = std::max(file->vocab_size, id + 1);
  }
  return absl::OkStatus();
}

absl::Status ParseMerges(const json& merges, TokenizerFile* file) {
  if (!merges.is_array()) return Invalid("model.merges: expected an array");
  for (size_t i = 0; i < merges.size(); ++i) {
    const json& entry = merges[i];
    std::vector<std::string> parts;
    if (entry.is_string()) {
      parts = absl::StrSplit(entry.get_ref<const std::string&>(), ' ');
    } else if (entry.is_array() && entry.size() == 2 && entry[0].is_string() &&
               entry[1].is_string()) {
      parts = {entry[0].get<std::string>(), entry[1].get<std::string>()};
    }
    if (parts.size() != 2 || parts[0].empty() || parts[1].empty()) {
      return Invalid("model.merges[", i, "]: expected \"left right\" or [left, right], got ",
                     Excerpt(entry));
    }
    std::optional<std::string> left = BytesOfSpelling(parts[0]);
    std::optional<std::string> right = BytesOfSpelling(parts[1]);
    if (!left.has_value() || !right.has_value()) {
      return Invalid("model.merges[", i, "]: not in the byte-level alphabet: ", Excerpt(entry));
    }
    file->bpe.merges.push_back({*std::move(left), *std::move(right)});
  }
  return absl::OkStatus();
}

absl::Status ParseModel(const json& model, TokenizerFile* file) {
  if (!HasType(model, "BPE")) return Invalid("model: only BPE is supported");
  const json& dropout = Member(model, "dropout");
  if (!dropout.is_null() && dropout != 0.0) return Invalid("model.dropout: not supported");
  if (!Member(model, "unk_token").is_null()) return Invalid("model.unk_token: not supported");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!Member(model, key).is_null() && Member(model, key) != "") {
      return Invalid("model.", key, ": not supported");
    }
  }
  for (const char* key : {"byte_fallback", "ignore_merges"}) {
    if (!Member(model, key).is_null() && !Member(model, key).is_boolean()) {
      return Invalid("model.", key, ": expected a boolean");
    }
  }
  if (Member(model, "byte_fallback") == true) {
    return Invalid("model.byte_fallback: not supported in a byte-level model");
  }
  file->bpe.ignore_merges = Member(model, "ignore_merges") == true;
  BATON_RETURN_IF_ERROR(ParseVocabulary(Member(model, "vocab"), file));
  return ParseMerges(Member(model, "merges"), file);
}

}  // namespace

absl::StatusOr<TokenizerFile> ParseTokenizerFile(std::string_view json_text) {
  if (json_text.find('\0') != std::string_view::npos) {  // for the library it would be the end
    return Invalid("not valid JSON: it has a zero byte");
  }
  const json root = json::parse(json_text, nullptr, /*allow_exceptions=*/false);
  if (root.is_discarded()) return Invalid("not valid JSON");
  if (!root.is_object()) return Invalid("expected a JSON object");
  TokenizerFile file;
  BATON_RETURN_IF_ERROR(CheckPipeline(root));
  BATON_RETURN_IF_ERROR(ParseAddedTokens(Member(root, "added_tokens"), &file));
  BATON_RETURN_IF_ERROR(ParseModel(Member(root, "model"), &file));
  return file;
}

}  // namespace baton::router
