#include "common/suggestion.h"

#include "gtest/gtest.h"

namespace baton {
namespace {

TEST(SuggestionTest, TheNearestNameIsSuggested) {
  EXPECT_EQ(Suggestion("prefil", {"profile", "prefill", "decode"}, "--"),
            ", did you mean --prefill?");
  EXPECT_EQ(Suggestion("tpo", {"up", "chat", "top"}), ", did you mean top?")
      << "two letters swapped";
  EXPECT_EQ(Suggestion("a", {"ab", "ac"}), ", did you mean ab?") << "of names as near the first";
}

TEST(SuggestionTest, WhatIsFarFromAllIsNoName) {
  EXPECT_EQ(Suggestion("colour", {"prefill", "decode"}), "");
  EXPECT_EQ(Suggestion("x", {}), "");
}

}  // namespace
}  // namespace baton
