#include "engine/cache/page_pool.h"

#include <random>
#include <vector>

#include "tests/testing/status_matchers.h"

namespace baton::engine {
namespace {

using ::baton::testing::IsOk;
using ::baton::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(IdPoolTest, AllocatesAllOrNothing) {
  IdPool pool("page", 3);
  EXPECT_FALSE(pool.Allocate(4).has_value());
  EXPECT_EQ(pool.free(), 3);
  EXPECT_THAT(*pool.Allocate(2), ElementsAre(0, 1));
  EXPECT_FALSE(pool.Allocate(2).has_value());
  EXPECT_EQ(pool.free(), 1);
  EXPECT_THAT(*pool.Allocate(1), ElementsAre(2));
  EXPECT_FALSE(pool.Allocate(1).has_value());
}

TEST(IdPoolTest, WhatIsSharedIsFreeWhenTheLastHolderLetsGo) {
  IdPool pool("page", 2);
  const std::vector<int32_t> ids = *pool.Allocate(1);
  pool.Share(ids);
  EXPECT_EQ(pool.holders(0), 2);
  EXPECT_THAT(pool.Audit(std::vector<std::vector<int32_t>>{{0}, {0}}), IsOk());
  EXPECT_THAT(pool.Audit(std::vector<std::vector<int32_t>>{{0}}),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("page 0 leaked: 2 holders, 1 own")));
  pool.Free(ids);
  EXPECT_EQ(pool.free(), 1);
  pool.Free(ids);
  EXPECT_EQ(pool.free(), 2);
}

TEST(IdPoolTest, AllocatingNothingAlwaysSucceeds) {
  IdPool pool("page", 0);
  EXPECT_TRUE(pool.Allocate(0)->empty());
}

TEST(IdPoolTest, WhatIsFreedLastIsUsedFirst) {
  IdPool pool("page", 8);
  const std::vector<int32_t> ids = *pool.Allocate(4);
  pool.Free(std::vector<int32_t>{ids[2]});
  EXPECT_THAT(*pool.Allocate(1), ElementsAre(ids[2]));
}

TEST(IdPoolDeathTest, FreeingTwiceOrWhatIsNoIdIsFatal) {
  IdPool pool("page", 2);
  const std::vector<int32_t> ids = *pool.Allocate(1);
  pool.Free(ids);
  EXPECT_DEATH(pool.Free(ids), "page 0 freed twice");
  EXPECT_DEATH(pool.Share(ids), "page 0 is free");
  EXPECT_DEATH(pool.Free(std::vector<int32_t>{2}), "page 2 of 2");
  EXPECT_DEATH(pool.Free(std::vector<int32_t>{-1}), "page -1 of 2");
}

TEST(IdPoolTest, AuditFindsLeaksAndDoubleOwners) {
  IdPool pool("page", 4);
  const std::vector<int32_t> ids = *pool.Allocate(3);
  EXPECT_THAT(pool.Audit(std::vector<std::vector<int32_t>>{{0}, {1, 2}}), IsOk());
  EXPECT_THAT(pool.Audit(std::vector<std::vector<int32_t>>{{0}, {2}}),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("page 1 leaked")));
  EXPECT_THAT(pool.Audit(std::vector<std::vector<int32_t>>{{0, 1}, {1, 2}}),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("page 1 is held too often")));
  EXPECT_THAT(pool.Audit(std::vector<std::vector<int32_t>>{{0, 1, 2, 3}}),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("page 3 is held too often")));
  EXPECT_THAT(pool.Audit(std::vector<std::vector<int32_t>>{{0, 1, 2, 9}}),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("page 9 of 4")));
}

TEST(IdPoolTest, FreeAndOwnedAlwaysAddUpToTheTotal) {
  std::mt19937 random(3);
  IdPool pool("page", 37);
  std::vector<std::vector<int32_t>> owners;
  for (int round = 0; round < 2000; ++round) {
    if (random() % 2 == 0) {
      if (auto ids = pool.Allocate(random() % 9)) owners.push_back(*std::move(ids));
    } else if (!owners.empty()) {
      std::swap(owners[random() % owners.size()], owners.back());
      pool.Free(owners.back());
      owners.pop_back();
    }
    ASSERT_THAT(pool.Audit(owners), IsOk());
  }
}

}  // namespace
}  // namespace baton::engine
