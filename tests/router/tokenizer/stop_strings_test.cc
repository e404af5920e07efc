#include "router/tokenizer/stop_strings.h"

#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace baton::router {
namespace {

StopStringMatcher MatcherOf(std::vector<std::string> stop_strings) {
  auto matcher = StopStringMatcher::Create(std::move(stop_strings));
  EXPECT_TRUE(matcher.ok()) << matcher.status();
  return *std::move(matcher);
}

TEST(StopStringMatcherTest, EmptyStopStringIsRefused) {
  EXPECT_EQ(StopStringMatcher::Create({"a", ""}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(StopStringMatcherTest, WithoutStopStringsTextPassesThrough) {
  StopStringMatcher matcher = MatcherOf({});
  EXPECT_EQ(matcher.Push("abc").text, "abc");
  EXPECT_EQ(matcher.Push("").text, "");
  EXPECT_EQ(matcher.Flush(), "");
}

TEST(StopStringMatcherTest, PossibleBeginningIsHeldUntilItIsDecided) {
  StopStringMatcher matcher = MatcherOf({"STOP"});
  EXPECT_EQ(matcher.Push("go ST").text, "go ");
  EXPECT_EQ(matcher.Push("O").text, "");
  EXPECT_EQ(matcher.Push("RM").text, "STORM");
  EXPECT_EQ(matcher.Push("ST").text, "");
  const auto output = matcher.Push("OP and more");
  EXPECT_EQ(output.text, "");
  EXPECT_EQ(output.match, 0u);
}

TEST(StopStringMatcherTest, HeldTextComesOutAtTheEnd) {
  StopStringMatcher matcher = MatcherOf({"\n\nUser:"});
  EXPECT_EQ(matcher.Push("bye\n\nUse").text, "bye");
  EXPECT_EQ(matcher.Flush(), "\n\nUse");
}

TEST(StopStringMatcherTest, TextAfterAMatchIsSwallowed) {
  StopStringMatcher matcher = MatcherOf({"x", "end"});
  EXPECT_EQ(matcher.Push("the end of x").text, "the ");
  const auto output = matcher.Push("more");
  EXPECT_EQ(output.text, "");
  EXPECT_EQ(output.match, 1u);
  EXPECT_EQ(matcher.Flush(), "");
}

TEST(StopStringMatcherTest, FirstToBeCompleteWinsThenTheLongest) {
  EXPECT_EQ(MatcherOf({"abcd", "bc"}).Push("abcd").match, 1u);
  const auto output = MatcherOf({"c", "abc", "bc"}).Push("xabc");
  EXPECT_EQ(output.match, 1u);
  EXPECT_EQ(output.text, "x");
}

TEST(StopStringMatcherTest, OverlappingBeginningsAreNotMissed) {
  StopStringMatcher matcher = MatcherOf({"aab"});
  EXPECT_EQ(matcher.Push("aaa").text, "a");
  const auto output = matcher.Push("b");
  EXPECT_EQ(output.text, "");
  EXPECT_EQ(output.match, 0u);
}

TEST(StopStringMatcherTest, HeldTextIsCutBetweenCodePoints) {
  StopStringMatcher matcher = MatcherOf({"你好"});
  EXPECT_EQ(matcher.Push("说你").text, "说");
  EXPECT_EQ(matcher.Push("们").text, "你们");
}

TEST(StopStringMatcherTest, RandomStreamsMatchAsASearchOfTheWholeText) {
  std::mt19937 random(13);
  const auto random_text = [&](int longest) {
    std::string text;
    for (int n = random() % longest + 1; n > 0; --n) text += "ab"[random() % 2];
    return text;
  };
  for (int round = 0; round < 3000; ++round) {
    const std::vector<std::string> stops = {random_text(6), random_text(6)};
    const std::string text = random_text(30);
    size_t best_end = std::string::npos;
    size_t best_begin = text.size();
    for (const std::string& stop : stops) {
      const size_t found = text.find(stop);
      if (found == std::string::npos) continue;
      const size_t end = found + stop.size();
      if (end < best_end || (end == best_end && found < best_begin)) {
        best_end = end;
        best_begin = found;
      }
    }
    StopStringMatcher matcher = MatcherOf(stops);
    std::string seen;
    bool matched = false;
    for (size_t pos = 0; pos < text.size() && !matched;) {
      const std::string piece = text.substr(pos, 1 + random() % 4);
      const auto output = matcher.Push(piece);
      seen += output.text;
      matched = output.match.has_value();
      pos += piece.size();
    }
    seen += matcher.Flush();
    ASSERT_EQ(matched, best_end != std::string::npos) << text;
    ASSERT_EQ(seen, text.substr(0, best_begin)) << text << " " << stops[0] << " " << stops[1];
  }
}

}  // namespace
}  // namespace baton::router
