#include "common/fnv1a.h"

#include "gtest/gtest.h"

namespace baton {
namespace {

TEST(Fnv1aTest, EqualsThePublishedVectors) {
  EXPECT_EQ(Fnv1a64(""), 0xcbf29ce484222325u);
  EXPECT_EQ(Fnv1a64("a"), 0xaf63dc4c8601ec8cu);
  EXPECT_EQ(Fnv1a64("foobar"), 0x85944171f73967e8u);
}

TEST(Fnv1aTest, GoesOnWhereItStopped) {
  EXPECT_EQ(Fnv1a64("bar", Fnv1a64("foo")), Fnv1a64("foobar"));
}

}  // namespace
}  // namespace baton
