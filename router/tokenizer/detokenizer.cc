#include "router/tokenizer/detokenizer.h"

#include <algorithm>
#include <utility>

#include "router/tokenizer/utf8.h"

namespace baton::router {

Detokenizer::Detokenizer(const Tokenizer* tokenizer, Options options)
    : tokenizer_(tokenizer), options_(std::move(options)) {}

bool Detokenizer::Shows(int32_t id) const {
  if (tokenizer_->TokenBytes(id).empty()) return false;
  return !options_.skip_special || !tokenizer_->IsSpecial(id) ||
         std::find(options_.keep_ids.begin(), options_.keep_ids.end(), id) !=
             options_.keep_ids.end();
}

std::string Detokenizer::Push(int32_t id, size_t* begin) {
  if (begin != nullptr) *begin = 0;
  if (!Shows(id)) return {};
  const size_t token_begin = pending_.size();
  pending_.append(tokenizer_->TokenBytes(id));
  std::string text;
  size_t pos = 0;
  while (pos < pending_.size()) {
    if (begin != nullptr && pos <= token_begin) *begin = text.size();
    const Utf8Unit unit = NextUtf8(pending_, pos);
    if (unit.kind == Utf8Unit::Kind::kIncomplete) break;
    if (unit.kind == Utf8Unit::Kind::kValid) {
      text.append(pending_, pos, unit.bytes);
    } else {
      text.append(kReplacementCharacter);
    }
    pos += unit.bytes;
  }
  pending_.erase(0, pos);
  return text;
}

std::string Detokenizer::Flush() {
  const bool is_incomplete = !std::exchange(pending_, {}).empty();
  return is_incomplete ? std::string(kReplacementCharacter) : std::string();
}

}  // namespace baton::router
