#include "router/tokenizer/pre_tokenizer.h"

#include <cstddef>
#include <cstdint>

#include "router/tokenizer/unicode_classes.h"

namespace baton::router {
namespace {

bool IsAsciiLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool IsAscii(char c) { return static_cast<uint8_t>(c) < 0x80; }

struct Char {
  uint8_t classes;  // UnicodeClass bits
  uint8_t bytes;
};

// Walks over one text; positions are byte offsets of code point starts.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text), classes_(UnicodeClassTable()) {}

  // First position in [pos, end) whose character has none of `classes` (or end).
  size_t SkipWhile(size_t pos, size_t end, uint8_t classes) const {
    while (pos < end) {
      const Char c = At(pos);
      if (!(c.classes & classes)) break;
      pos += c.bytes;
    }
    return pos;
  }

  // First position in [pos, end) whose character has one of `classes` (or end).
  size_t SkipUntil(size_t pos, size_t end, uint8_t classes) const {
    while (pos < end) {
      const Char c = At(pos);
      if (c.classes & classes) break;
      pos += c.bytes;
    }
    return pos;
  }

  // End of the match of kNumberPattern at a number.
  size_t NumberEnd(size_t pos) const {
    for (int count = 0; count < 3 && pos < text_.size(); ++count) {
      const Char c = At(pos);
      if (!(c.classes & kNumber)) break;
      pos += c.bytes;
    }
    return pos;
  }

  // End of the match of kWordPattern that starts at pos within a segment that ends at `end`; pos
  // itself when no alternative matches there. The alternatives in their order:
  size_t WordEnd(size_t pos, size_t end) const {
    const Char c = At(pos);
    const size_t next = pos + c.bytes;
    const Char after = next < end ? At(next) : Char{0, 0};
    if ((c.classes & kPunctuationOrSymbol) && IsAscii(text_[pos]) && next < end &&
        IsAsciiLetter(text_[next])) {
      return AsciiLettersEnd(next, end);
    }
    if (c.classes & (kLetter | kMark)) return SkipWhile(next, end, kLetter | kMark);
    if (!(c.classes & (kLineBreak | kPunctuationOrSymbol)) && (after.classes & (kLetter | kMark))) {
      return SkipWhile(next, end, kLetter | kMark);
    }
    if ((c.classes & kPunctuationOrSymbol) ||
        (text_[pos] == ' ' && (after.classes & kPunctuationOrSymbol))) {
      return SkipWhile(SkipWhile(next, end, kPunctuationOrSymbol), end, kLineBreak);
    }
    if (c.classes & kSpace) return SpaceEnd(pos, end);
    return pos;
  }

  Char At(size_t pos) const {
    const auto byte = [&](size_t i) { return static_cast<uint8_t>(text_[pos + i]); };
    const uint32_t lead = byte(0);
    if (lead < 0x80) return {classes_[lead], 1};
    if (lead < 0xE0) return {classes_[(lead & 0x1F) << 6 | (byte(1) & 0x3F)], 2};
    if (lead < 0xF0) {
      return {classes_[(lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F)], 3};
    }
    return {classes_[(lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 |
                     (byte(3) & 0x3F)],
            4};
  }

 private:
  size_t AsciiLettersEnd(size_t pos, size_t end) const {
    while (pos < end && IsAsciiLetter(text_[pos])) ++pos;
    return pos;
  }

  // \s*[\r\n]+ up to the run's last line break; else the run, less its last character when a
  // non-space follows and something is left: that one may open the next word.
  size_t SpaceEnd(size_t begin, size_t end) const {
    size_t pos = begin;
    size_t last = begin;  // start of the run's last character
    size_t after_line_break = begin;
    while (pos < end) {
      const Char c = At(pos);
      if (!(c.classes & kSpace)) break;
      last = pos;
      pos += c.bytes;
      if (c.classes & kLineBreak) after_line_break = pos;
    }
    if (after_line_break > begin) return after_line_break;
    return pos == end || last == begin ? pos : last;
  }

  std::string_view text_;
  const uint8_t* classes_;
};

}  // namespace

void PreTokenize(std::string_view text, absl::FunctionRef<void(std::string_view)> emit) {
  const Scanner scanner(text);
  const auto emit_range = [&](size_t begin, size_t end) {
    if (begin < end) emit(text.substr(begin, end - begin));
  };
  for (size_t pos = 0; pos < text.size();) {
    const uint8_t classes = scanner.At(pos).classes;
    if (classes & kNumber) {
      const size_t end = scanner.NumberEnd(pos);
      emit_range(pos, end);
      pos = end;
      continue;
    }
    const size_t segment_end = classes & kCjkOrKana
                                   ? scanner.SkipWhile(pos, text.size(), kCjkOrKana)
                                   : scanner.SkipUntil(pos, text.size(), kNumber | kCjkOrKana);
    size_t unmatched = pos;
    while (pos < segment_end) {
      const size_t end = scanner.WordEnd(pos, segment_end);
      if (end == pos) {
        pos += scanner.At(pos).bytes;
        continue;
      }
      emit_range(unmatched, pos);
      emit_range(pos, end);
      unmatched = pos = end;
    }
    emit_range(unmatched, segment_end);
  }
}

}  // namespace baton::router
