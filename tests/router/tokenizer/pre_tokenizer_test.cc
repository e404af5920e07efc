#include "router/tokenizer/pre_tokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <pcre2.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "router/tokenizer/unicode_classes.h"
#include "router/tokenizer/utf8.h"

namespace baton::router {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> Pieces(std::string_view text) {
  std::vector<std::string> pieces;
  PreTokenize(text, [&](std::string_view piece) { pieces.emplace_back(piece); });
  return pieces;
}

// One stage of the pre-tokenizer as the pattern itself defines it.
class RegexSplit {
 public:
  explicit RegexSplit(std::string_view pattern) {
    int error = 0;
    size_t offset = 0;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                              PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr));
    EXPECT_NE(code_, nullptr) << pattern;
    match_.reset(pcre2_match_data_create_from_pattern(code_.get(), nullptr));
  }

  std::vector<std::string> Split(const std::vector<std::string>& pieces) const {
    std::vector<std::string> result;
    for (const std::string& piece : pieces) {
      size_t pos = 0;
      while (pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(piece.data()), piece.size(), pos,
                         0, match_.get(), nullptr) > 0) {
        const size_t* const range = pcre2_get_ovector_pointer(match_.get());
        if (range[0] > pos) result.push_back(piece.substr(pos, range[0] - pos));
        result.push_back(piece.substr(range[0], range[1] - range[0]));
        pos = range[1];
      }
      if (pos < piece.size()) result.push_back(piece.substr(pos));
    }
    return result;
  }

 private:
  struct Free {
    void operator()(pcre2_code* code) const { pcre2_code_free(code); }
    void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
  };
  std::unique_ptr<pcre2_code, Free> code_;
  std::unique_ptr<pcre2_match_data, Free> match_;
};

// A random code point; from Unicode blocks that both class tables know alike, that is without
// U+180E (a space to PCRE2 alone) and what newer Unicode versions added.
char32_t RandomCodePoint(std::mt19937* random) {
  constexpr char32_t kRanges[][2] = {
      {0x20, 0x7E},     {0x20, 0x7E},     {'a', 'z'},       {'0', '9'},        {' ', ' '},
      {'\n', '\r'},     {0x00, 0x1F},     {0x7F, 0xFF},     {0x300, 0x36F},    {0x370, 0x3FF},
      {0x660, 0x669},   {0x904, 0x939},   {0x93A, 0x94F},   {0x2000, 0x206F},  {0x2150, 0x218B},
      {0x2200, 0x22FF}, {0x3000, 0x303F}, {0x3040, 0x309F}, {0x30A0, 0x30FF},  {0x4E00, 0x4E20},
      {0x9F90, 0x9FFF}, {0xAC00, 0xAC20}, {0xFF01, 0xFF5E}, {0x1F600, 0x1F64F}};
  const auto& range = kRanges[(*random)() % std::size(kRanges)];
  return range[0] + (*random)() % (range[1] - range[0] + 1);
}

TEST(PreTokenizerTest, PiecesAreThoseOfTheRegularExpressions) {
  const RegexSplit stages[] = {RegexSplit(kNumberPattern), RegexSplit(kCjkPattern),
                               RegexSplit(kWordPattern)};
  std::mt19937 random(3);
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    const int runs = 1 + random() % 12;
    for (int i = 0; i < runs; ++i) {
      const char32_t c = RandomCodePoint(&random);
      for (int repeat = random() % 4 ? 1 : 1 + random() % 4; repeat > 0; --repeat) {
        AppendUtf8(c, &text);
      }
    }
    std::vector<std::string> expected = {text};
    for (const RegexSplit& stage : stages) expected = stage.Split(expected);
    ASSERT_EQ(Pieces(text), expected) << text;
  }
}

TEST(PreTokenizerTest, EmptyTextHasNoPieces) { EXPECT_THAT(Pieces(""), IsEmpty()); }

TEST(PreTokenizerTest, NumbersAreCutIntoThrees) {
  EXPECT_THAT(Pieces("1234567"), ElementsAre("123", "456", "7"));
  EXPECT_THAT(Pieces("a12b"), ElementsAre("a", "12", "b"));
}

TEST(PreTokenizerTest, SpaceGoesWithTheNextWordAndNewlinesWithWhatIsBefore) {
  EXPECT_THAT(Pieces("a  b"), ElementsAre("a", " ", " b"));
  EXPECT_THAT(Pieces("a 1"), ElementsAre("a", " ", "1"));
  EXPECT_THAT(Pieces("a  1"), ElementsAre("a", "  ", "1"));
  EXPECT_THAT(Pieces("end.\n\nNext"), ElementsAre("end", ".\n\n", "Next"));
  EXPECT_THAT(Pieces(" \n \n  x"), ElementsAre(" \n \n", " ", " x"));
  EXPECT_THAT(Pieces("x  "), ElementsAre("x", "  "));
}

TEST(PreTokenizerTest, PunctuationBeforeAnAsciiWordGoesWithIt) {
  EXPECT_THAT(Pieces("it's (x)"), ElementsAre("it", "'s", " (", "x", ")"));
  EXPECT_THAT(Pieces("_été"), ElementsAre("_", "été"));
  EXPECT_THAT(Pieces("'aé"), ElementsAre("'a", "é"));
}

TEST(PreTokenizerTest, CjkRunsStandAloneAndAreSplitAtTheirPunctuation) {
  EXPECT_THAT(Pieces("x你好y"), ElementsAre("x", "你好", "y"));
  EXPECT_THAT(Pieces("ア・イ"), ElementsAre("ア", "・", "イ"));
}

TEST(PreTokenizerTest, UnmatchedCharactersAreOnePiece) {
  EXPECT_THAT(Pieces("\x01\x02"), ElementsAre("\x01\x02"));
  EXPECT_THAT(Pieces("\x01\x02z"), ElementsAre("\x01", "\x02z"));
}

TEST(UnicodeClassesTest, GeneralCategoriesExcludeEachOther) {
  const uint8_t* const table = UnicodeClassTable();
  for (uint32_t c = 0; c < 0x110000; ++c) {
    const uint8_t category = table[c] & (kLetter | kMark | kNumber | kPunctuationOrSymbol);
    ASSERT_EQ(category & (category - 1), 0) << c;
    if (table[c] & kLineBreak) {
      ASSERT_TRUE(table[c] & kSpace) << c;
    }
  }
}

TEST(UnicodeClassesTest, NewerUnicodeVersionsAreKnown) {
  EXPECT_TRUE(UnicodeClassTable()[0x31350] & kLetter);  // CJK extension H, Unicode 15
  EXPECT_TRUE(UnicodeClassTable()[0x10D40] & kNumber);  // Garay digit zero, Unicode 16
  EXPECT_FALSE(UnicodeClassTable()[0x180E] & kSpace);   // no space since Unicode 6.3
}

}  // namespace
}  // namespace baton::router
