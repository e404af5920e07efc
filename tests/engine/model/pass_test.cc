#include "engine/model/pass.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton::engine {
namespace {

using ::testing::ElementsAre;

// Rows of each segment of each pass.
std::vector<std::vector<int64_t>> RowsIn(const std::vector<Pass>& passes) {
  std::vector<std::vector<int64_t>> rows;
  for (const Pass& pass : passes) {
    rows.emplace_back();
    for (const Segment& segment : pass.segments) rows.back().push_back(segment.rows);
  }
  return rows;
}

TEST(PlanPassesTest, RowsBoundAPass) {
  const std::vector<int32_t> tokens(5);
  const std::vector<SequenceChunk> batch(3, {.tokens = tokens, .start = 10, .pages = {}});
  const std::vector<Pass> passes = PlanPasses(batch, 8);
  EXPECT_THAT(RowsIn(passes), ElementsAre(ElementsAre(5, 3), ElementsAre(2, 5)));
  EXPECT_EQ(passes[1].first_row, 8);
  EXPECT_EQ(passes[1].segments[0].start, 13);
}

TEST(PlanPassesTest, PageIdsBoundAPass) {
  const std::vector<int32_t> token(1);
  const std::vector<int32_t> few(2);
  const std::vector<int32_t> many(10);
  const auto chunk = [&](const std::vector<int32_t>& pages) {
    return SequenceChunk{.tokens = token, .start = 100, .pages = pages};
  };
  // A table has as many columns as the longest needs: with it there is room for two.
  const std::vector<SequenceChunk> batch = {chunk(few), chunk(few), chunk(many), chunk(few),
                                            chunk(few), chunk(few), chunk(few)};
  const std::vector<Pass> passes = PlanPasses(batch, 100, /*max_page_ids=*/20);
  EXPECT_THAT(RowsIn(passes),
              ElementsAre(ElementsAre(1, 1), ElementsAre(1, 1), ElementsAre(1, 1, 1)));
  EXPECT_EQ(passes[1].first_row, 2);
  EXPECT_EQ(passes[2].first_row, 4);
  // One sequence alone is computed whatever it has.
  EXPECT_THAT(RowsIn(PlanPasses({&batch[2], 1}, 100, 20)), ElementsAre(ElementsAre(1)));
}

}  // namespace
}  // namespace baton::engine
