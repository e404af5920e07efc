#include "router/tokenizer/tokenizer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/fnv1a.h"
#include "common/read_file.h"
#include "common/status_macros.h"
#include "router/tokenizer/pre_tokenizer.h"
#include "router/tokenizer/utf8.h"

namespace baton::router {

// One Encode call: collects plain text until an added token or the end closes it, so that pieces
// never end at a cut between segments.
class Tokenizer::Encoder {
 public:
  explicit Encoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  void Append(std::string_view text, AddedTokenText added_tokens) {
    if (added_tokens == AddedTokenText::kPlain) {
      plain_.append(text);
    } else {
      AppendMatching(text, 0);
    }
  }

  std::vector<int32_t> Finish() {
    FlushPlain();
    return std::move(ids_);
  }

 private:
  void AppendMatching(std::string_view text, size_t matcher) {
    if (matcher == std::size(tokenizer_.matchers_)) {
      plain_.append(text);
      return;
    }
    size_t pos = 0;
    while (true) {
      const auto match = tokenizer_.matchers_[matcher].Find(text, pos);
      if (!match.has_value()) break;
      AppendMatching(text.substr(pos, match->begin - pos), matcher + 1);
      FlushPlain();
      ids_.push_back(match->id);
      pos = match->begin + match->length;
    }
    AppendMatching(text.substr(pos), matcher + 1);
  }

  void FlushPlain() {
    if (!IsValidUtf8(plain_)) plain_ = SanitizeUtf8(plain_);
    PreTokenize(plain_,
                [&](std::string_view piece) { tokenizer_.bpe_.Encode(piece, &scratch_, &ids_); });
    plain_.clear();
  }

  const Tokenizer& tokenizer_;
  BpeModel::Scratch scratch_;
  std::string plain_;
  std::vector<int32_t> ids_;
};

absl::StatusOr<Tokenizer> Tokenizer::Load(const std::string& path) {
  BATON_ASSIGN_OR_RETURN(const std::string text, ReadRegularFile(path));
  absl::StatusOr<Tokenizer> tokenizer = Parse(text);
  if (!tokenizer.ok()) return StatusBuilder(tokenizer.status()) << path;
  return tokenizer;
}

absl::StatusOr<Tokenizer> Tokenizer::Parse(std::string_view json_text) {
  BATON_ASSIGN_OR_RETURN(const TokenizerFile file, ParseTokenizerFile(json_text));
  BATON_ASSIGN_OR_RETURN(BpeModel bpe, BpeModel::Create(file.bpe));
  return Tokenizer(file, std::move(bpe), Fnv1a64(json_text));
}

Tokenizer::Tokenizer(const TokenizerFile& file, BpeModel bpe, uint64_t hash)
    : bpe_(std::move(bpe)),
      bytes_(file.vocab_size),
      is_special_(file.vocab_size, false),
      hash_(hash) {
  for (const BpeModel::Token& token : file.bpe.tokens) bytes_[token.id] = token.bytes;
  for (const AddedToken& token : file.added_tokens) {
    bytes_[token.id] = token.content;
    is_special_[token.id] = token.special;
    added_ids_.emplace(token.content, token.id);
    matchers_[token.normalized ? 1 : 0].Add(token.content, token.id);
  }
  for (const std::string& bytes : bytes_) {
    longest_token_bytes_ = std::max(longest_token_bytes_, bytes.size());
  }
}

std::vector<int32_t> Tokenizer::Encode(std::string_view text, AddedTokenText added_tokens) const {
  Encoder encoder(*this);
  encoder.Append(text, added_tokens);
  return encoder.Finish();
}

std::vector<int32_t> Tokenizer::Encode(std::span<const TextSegment> segments) const {
  Encoder encoder(*this);
  for (const TextSegment& segment : segments) encoder.Append(segment.text, segment.added_tokens);
  return encoder.Finish();
}

std::string Tokenizer::Decode(std::span<const int32_t> ids, bool skip_special) const {
  std::string bytes;
  for (const int32_t id : ids) {
    if (!skip_special || !IsSpecial(id)) bytes.append(TokenBytes(id));
  }
  return SanitizeUtf8(bytes);
}

std::string_view Tokenizer::TokenBytes(int32_t id) const {
  if (id < 0 || id >= vocab_size()) return {};
  return bytes_[id];
}

bool Tokenizer::IsSpecial(int32_t id) const {
  return id >= 0 && id < vocab_size() && is_special_[id];
}

std::optional<int32_t> Tokenizer::AddedTokenId(std::string_view content) const {
  const auto it = added_ids_.find(std::string(content));
  if (it == added_ids_.end()) return std::nullopt;
  return it->second;
}

absl::Status Tokenizer::CheckModelVocabulary(int32_t rows) const {
  if (vocab_size() <= rows) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the tokenizer has ids up to ", vocab_size() - 1,
                                                 ", but the model's vocabulary has ", rows,
                                                 " rows"));
}

}  // namespace baton::router
