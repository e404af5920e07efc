#include "router/tokenizer/utf8.h"

#include <string>

#include "gtest/gtest.h"

namespace baton::router {
namespace {

const std::string kFFFD(kReplacementCharacter);

TEST(Utf8Test, EveryCodePointSurvivesARoundTrip) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    AppendUtf8(c, &text);
    const Utf8Unit unit = NextUtf8(text, 0);
    ASSERT_EQ(unit.kind, Utf8Unit::Kind::kValid) << static_cast<uint32_t>(c);
    ASSERT_EQ(unit.code_point, c);
    ASSERT_EQ(unit.bytes, text.size());
  }
}

TEST(Utf8Test, MaximalSubpartsAreReplacedOneByOne) {
  const struct {
    std::string malformed, replaced;
  } cases[] = {
      {"\x80", kFFFD},                                      // continuation alone
      {"\xC0\xAF", kFFFD + kFFFD},                          // overlong
      {"\xE0\x80\xAF", kFFFD + kFFFD + kFFFD},              // overlong
      {"\xED\xA0\x80", kFFFD + kFFFD + kFFFD},              // surrogate
      {"\xF4\x90\x80\x80", kFFFD + kFFFD + kFFFD + kFFFD},  // above U+10FFFF
      {"\xF5\x80", kFFFD + kFFFD},                          // no lead byte
      {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF"
       "A",
       kFFFD + kFFFD + kFFFD + kFFFD + "A"},
      {"a\xF0\x9F\x98", "a" + kFFFD},  // cut off: one unit
      {"\xF0\x9F\x98\xF0\x9F\x98\x80", kFFFD + "😀"},
  };
  for (const auto& [malformed, replaced] : cases) {
    EXPECT_EQ(SanitizeUtf8(malformed), replaced);
    EXPECT_FALSE(IsValidUtf8(malformed));
    EXPECT_TRUE(IsValidUtf8(replaced));
  }
}

TEST(Utf8Test, ValidTextIsLeftAlone) {
  const std::string text("aé你😀\0z", 12);
  EXPECT_TRUE(IsValidUtf8(text));
  EXPECT_EQ(SanitizeUtf8(text), text);
  EXPECT_EQ(SanitizeUtf8(""), "");
}

TEST(Utf8Test, CutSequencesAreIncompleteOnlyWhileTheyCanStillBeRepaired) {
  EXPECT_EQ(NextUtf8("\xF0\x9F", 0).kind, Utf8Unit::Kind::kIncomplete);
  EXPECT_EQ(NextUtf8("\xF0\x9F", 0).bytes, 2u);
  EXPECT_EQ(NextUtf8("\xED\xA0", 0).kind, Utf8Unit::Kind::kInvalid);
  EXPECT_EQ(NextUtf8("\xE4", 0).kind, Utf8Unit::Kind::kIncomplete);
}

}  // namespace
}  // namespace baton::router
