#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "router/tokenizer/bpe.h"

namespace baton::router {

struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool special = false;     // control token: left out of visible text on request
  bool normalized = false;  // matched only after all tokens that are not
};

// What a tokenizer.json says, checked: byte-level BPE with the DeepSeek pre-tokenizer.
struct TokenizerFile {
  BpeModel::Spec bpe;  // without the added tokens; spellings turned into bytes
  std::vector<AddedToken> added_tokens;
  int32_t vocab_size = 0;  // highest id + 1; ids between may be unused
};

// Ids above this are refused, so that a broken file cannot ask for gigabytes.
inline constexpr int32_t kMaxTokenId = (1 << 20) - 1;

// Reads the text of a tokenizer.json. InvalidArgument for anything malformed, contradictory or not
// implemented (another model, pre-tokenizer or decoder, a normalizer, truncation, padding, added
// tokens that strip spaces or want word boundaries): a near miss would tokenize wrongly in silence.
absl::StatusOr<TokenizerFile> ParseTokenizerFile(std::string_view json_text);

}  // namespace baton::router
