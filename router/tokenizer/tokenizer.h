#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "router/tokenizer/added_tokens.h"
#include "router/tokenizer/bpe.h"
#include "router/tokenizer/tokenizer_file.h"

namespace baton::router {

// How the spelling of an added token ("<｜User｜>", "</think>" ...) inside a text is read.
enum class AddedTokenText {
  kPlain,  // as ordinary text: what a client wrote can never become a control token
  kMatch,  // as the token, as the reference implementation does everywhere
};

// A stretch of a prompt. Stretches are encoded as one text, so where they are cut changes no id,
// except that no added token is seen across a cut or in a kPlain stretch.
struct TextSegment {
  std::string text;
  AddedTokenText added_tokens = AddedTokenText::kPlain;

  friend bool operator==(const TextSegment&, const TextSegment&) = default;
};

// Text to token ids and back, for any DeepSeek-style tokenizer.json. Immutable; all const members
// may be called from any number of threads.
class Tokenizer {
 public:
  // `path` names a tokenizer.json. Errors name the file and what in it is missing or unsupported.
  static absl::StatusOr<Tokenizer> Load(const std::string& path);
  // The same from the file's content.
  static absl::StatusOr<Tokenizer> Parse(std::string_view json_text);

  Tokenizer(Tokenizer&&) = default;
  Tokenizer& operator=(Tokenizer&&) = default;

  // Malformed UTF-8 is read as U+FFFD, one for each maximal subpart. Adds no BOS or EOS.
  // Precondition: less than 2 GiB.
  std::vector<int32_t> Encode(std::string_view text,
                              AddedTokenText added_tokens = AddedTokenText::kPlain) const;
  std::vector<int32_t> Encode(std::span<const TextSegment> segments) const;

  // The text of `ids`, malformed UTF-8 replaced by U+FFFD. Unknown ids yield nothing.
  // `skip_special` leaves out tokens that the file marks as special.
  std::string Decode(std::span<const int32_t> ids, bool skip_special = false) const;

  // What a token contributes to the text: maybe part of a code point. Empty for unknown ids.
  std::string_view TokenBytes(int32_t id) const;
  bool IsSpecial(int32_t id) const;

  // The id of an added token by its exact spelling.
  std::optional<int32_t> AddedTokenId(std::string_view content) const;

  // Highest id + 1; there may be unused ids below.
  int32_t vocab_size() const { return static_cast<int32_t>(bytes_.size()); }

  // Of all tokens: a text of n bytes has at least n / longest_token_bytes() tokens.
  size_t longest_token_bytes() const { return longest_token_bytes_; }

  // InvalidArgument when an id would fall outside a model's embedding table of `rows` rows.
  absl::Status CheckModelVocabulary(int32_t rows) const;

  // FNV-1a, 64 bits, of the file's bytes: equal on all workers that speak the same token ids.
  uint64_t hash() const { return hash_; }

 private:
  Tokenizer(const TokenizerFile& file, BpeModel bpe, uint64_t hash);

  class Encoder;

  BpeModel bpe_;
  AddedTokenMatcher matchers_[2];  // tried in this order: not normalized, normalized
  absl::flat_hash_map<std::string, int32_t> added_ids_;
  std::vector<std::string> bytes_;  // by id
  std::vector<bool> is_special_;    // by id
  size_t longest_token_bytes_ = 0;
  uint64_t hash_;
};

}  // namespace baton::router
