#include "common/log_limit.h"

#include "gtest/gtest.h"

namespace baton {
namespace {

using std::chrono::seconds;

TEST(LogLimitTest, WhatIsHeldBackInASpanIsCountedInTheNext) {
  LogLimit limit(2, seconds(10));
  const LogLimit::Time start = std::chrono::steady_clock::now();
  EXPECT_EQ(limit.Next(start), 0);
  EXPECT_EQ(limit.Next(start + seconds(9)), 0);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(limit.Next(start + seconds(9)), std::nullopt);
  EXPECT_EQ(limit.Next(start + seconds(10)), 3);
  EXPECT_EQ(limit.Next(start + seconds(10)), 0);
  EXPECT_EQ(limit.Next(start + seconds(19)), std::nullopt);
  EXPECT_EQ(limit.Next(start + seconds(99)), 1);
}

}  // namespace
}  // namespace baton
