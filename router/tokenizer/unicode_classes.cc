#include "router/tokenizer/unicode_classes.h"

#include <span>
#include <vector>

namespace baton::router {
namespace {

struct CodePointRange {
  uint32_t first;
  uint32_t last;  // inclusive
};

#include "router/tokenizer/unicode_tables.inc"

constexpr CodePointRange kLineBreakRanges[] = {{'\n', '\n'}, {'\r', '\r'}};
constexpr CodePointRange kCjkOrKanaRanges[] = {{0x4E00, 0x9FA5}, {0x3040, 0x30FF}};

std::vector<uint8_t> BuildTable() {
  std::vector<uint8_t> table(0x110000, 0);
  const auto mark = [&](std::span<const CodePointRange> ranges, UnicodeClass bit) {
    for (const CodePointRange& range : ranges) {
      for (uint32_t c = range.first; c <= range.last; ++c) table[c] |= bit;
    }
  };
  mark(kLetterRanges, kLetter);
  mark(kMarkRanges, kMark);
  mark(kNumberRanges, kNumber);
  mark(kPunctuationOrSymbolRanges, kPunctuationOrSymbol);
  mark(kSpaceRanges, kSpace);
  mark(kLineBreakRanges, kLineBreak);
  mark(kCjkOrKanaRanges, kCjkOrKana);
  return table;
}

}  // namespace

const uint8_t* UnicodeClassTable() {
  static const std::vector<uint8_t>* const table = new std::vector<uint8_t>(BuildTable());
  return table->data();
}

}  // namespace baton::router
