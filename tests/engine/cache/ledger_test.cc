#include "engine/cache/ledger.h"

#include "tests/testing/status_matchers.h"

namespace baton::engine {
namespace {

using ::baton::testing::IsOk;
using ::baton::testing::IsOkAndHolds;
using ::baton::testing::StatusIs;
using ::testing::HasSubstr;

TEST(CacheLedgerTest, OpenTakesPagesAndASlotOrNothing) {
  CacheLedger ledger(10, 2);
  PageList a(10), b(10), c(10);
  EXPECT_THAT(ledger.Open(6, a), IsOkAndHolds(0));
  EXPECT_THAT(ledger.Open(5, b), StatusIs(absl::StatusCode::kResourceExhausted,
                                          HasSubstr("5 cache pages wanted, 4 of 10 are free")));
  EXPECT_EQ(b.size(), 0);
  EXPECT_EQ(ledger.usage().slots_free, 1);
  EXPECT_THAT(ledger.Open(4, b), IsOkAndHolds(1));
  EXPECT_THAT(ledger.Open(0, c), StatusIs(absl::StatusCode::kResourceExhausted,
                                          HasSubstr("all 2 state slots are taken")));
}

TEST(CacheLedgerTest, UsageIsRecountedFromLiveSequences) {
  CacheLedger ledger(10, 4);
  PageList a(10), b(10);
  const int slot = *ledger.Open(3, a);
  EXPECT_THAT(ledger.Open(2, b), IsOk());
  EXPECT_THAT(ledger.Grow(1, a), IsOk());
  const CacheUsage usage = ledger.usage();
  EXPECT_EQ(usage.pages_total, 10);
  EXPECT_EQ(usage.pages_free, 4);
  EXPECT_EQ(usage.pages_sequences, 6);
  EXPECT_EQ(usage.slots_total, 4);
  EXPECT_EQ(usage.slots_free, 2);
  EXPECT_THAT(ledger.Audit(), IsOk());
  ledger.Close(slot);
  EXPECT_EQ(ledger.usage().pages_sequences, 2);
  EXPECT_EQ(ledger.usage().pages_free, 8);
  EXPECT_THAT(ledger.Audit(), IsOk());
}

TEST(CacheLedgerTest, GrowthThatFailsLeavesTheListAsItWas) {
  CacheLedger ledger(4, 2);
  PageList a(10);
  EXPECT_THAT(ledger.Open(3, a), IsOk());
  EXPECT_THAT(ledger.Grow(2, a), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(a.size(), 3);
  EXPECT_EQ(ledger.usage().pages_free, 1);
}

TEST(CacheLedgerTest, AuditNoticesPagesThatASequenceLostSightOf) {
  CacheLedger ledger(4, 2);
  PageList a(10), stranger(10);
  EXPECT_THAT(ledger.Open(2, a), IsOk());
  EXPECT_THAT(ledger.Grow(1, stranger), IsOk());
  EXPECT_THAT(ledger.Audit(), StatusIs(absl::StatusCode::kInternal, HasSubstr("page 2 leaked")));
}

TEST(CacheLedgerDeathTest, ASlotIsClosedOnce) {
  CacheLedger ledger(4, 2);
  PageList a(10);
  const int slot = *ledger.Open(1, a);
  ledger.Close(slot);
  EXPECT_DEATH(ledger.Close(slot), "slot 0 is not live");
}

}  // namespace
}  // namespace baton::engine
