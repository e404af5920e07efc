#include "common/ids.h"

#include <set>

#include "gmock/gmock.h"
#include "tests/testing/status_matchers.h"

namespace baton {
namespace {

using ::baton::testing::IsOkAndHolds;
using ::baton::testing::StatusIs;
using ::testing::HasSubstr;

TEST(RequestIdTest, TextRoundTripsWithLeadingZeros) {
  const RequestId id{0x00000000000000ab, 0x0123456789abcdef};
  EXPECT_EQ(id.ToString(), "00000000000000ab0123456789abcdef");
  EXPECT_THAT(RequestId::Parse(id.ToString()), IsOkAndHolds(id));
  EXPECT_THAT(RequestId::Parse("00000000000000AB0123456789ABCDEF"), IsOkAndHolds(id));
}

TEST(RequestIdTest, AnythingButThirtyTwoDigitsIsRefused) {
  for (const char* text :
       {"", "ab", "00000000000000ab0123456789abcdef0", "00000000000000ag0123456789abcdef",
        "-0000000000000ab0123456789abcdef", "0x000000000000ab0123456789abcdef",
        " 0000000000000ab 123456789abcdef"}) {
    EXPECT_THAT(RequestId::Parse(text),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("32 hex digits")))
        << text;
  }
}

TEST(RequestIdTest, RandomIdsDiffer) {
  std::set<RequestId> ids;
  for (int i = 0; i < 1000; ++i) ids.insert(RequestId::Random());
  EXPECT_EQ(ids.size(), 1000u);
}

TEST(AttemptIdTest, TextNamesRequestAndAttempt) {
  EXPECT_EQ((AttemptId{{0, 1}, 2}).ToString(), "00000000000000000000000000000001/2");
}

TEST(IncarnationTest, IsNewAndNeverZero) {
  const Incarnation first = NewIncarnation();
  EXPECT_NE(first, 0u);
  EXPECT_NE(first, NewIncarnation());
}

}  // namespace
}  // namespace baton
