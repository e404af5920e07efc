#include "kernels/cuda/planner.h"

#include "tests/kernels/cuda/support.h"

namespace baton::kernels::cuda {
namespace {

class PlannerTest : public CudaTest {};

struct Planned {
  Planned(const std::vector<int32_t>& starts, const std::vector<int32_t>& counts,
          const std::vector<int32_t>& logits_counts, int rows, int logits_rows) {
    const DeviceArray<int32_t> start(starts), count(counts), logits_count(logits_counts);
    DeviceArray<int32_t> device_begin(static_cast<int64_t>(starts.size()) + 1);
    DeviceArray<int32_t> device_position(rows), device_sequence(rows), device_logits(logits_rows);
    PlanBatch({.rows = rows,
               .sequences = static_cast<int>(starts.size()),
               .start = start.get(),
               .row_count = count.get(),
               .logits_count = logits_count.get(),
               .logits_rows = logits_rows,
               .row_begin = device_begin.get(),
               .position = device_position.get(),
               .sequence = device_sequence.get(),
               .logits_row = device_logits.get()},
              TestStream().get());
    begin = device_begin.Download();
    position = device_position.Download();
    sequence = device_sequence.Download();
    logits = device_logits.Download();
  }
  std::vector<int32_t> begin, position, sequence, logits;
};

TEST_F(PlannerTest, MixesChunksDecodingUnusedSequencesAndPadding) {
  const Planned plan({100, 7, 0, 40}, {3, 1, 0, 2}, {1, 1, 5, 2}, 9, 6);
  EXPECT_EQ(plan.begin, (std::vector<int32_t>{0, 3, 4, 4, 6}));
  EXPECT_EQ(plan.position, (std::vector<int32_t>{100, 101, 102, 7, 40, 41, 0, 0, 0}));
  EXPECT_EQ(plan.sequence, (std::vector<int32_t>{0, 0, 0, 1, 3, 3, -1, -1, -1}));
  EXPECT_EQ(plan.logits, (std::vector<int32_t>{2, 3, 4, 5, -1, -1}));
}

TEST_F(PlannerTest, TakesNoSequencesAndAsManyAsFit) {
  const Planned none({}, {}, {}, 2, 1);
  EXPECT_EQ(none.begin, (std::vector<int32_t>{0}));
  EXPECT_EQ(none.sequence, (std::vector<int32_t>{-1, -1}));
  EXPECT_EQ(none.logits, (std::vector<int32_t>{-1}));

  const std::vector<int32_t> starts(kMaxPlannedSequences, 5), counts(kMaxPlannedSequences, 2),
      wanted(kMaxPlannedSequences, 1);
  const Planned full(starts, counts, wanted, 2 * kMaxPlannedSequences, kMaxPlannedSequences);
  for (int row = 0; row < 2 * kMaxPlannedSequences; ++row) {
    ASSERT_EQ(full.sequence[row], row / 2);
    ASSERT_EQ(full.position[row], 5 + row % 2);
  }
  EXPECT_EQ(full.logits.back(), 2 * kMaxPlannedSequences - 1);
}

TEST_F(PlannerTest, NextStartsFollowTheAcceptedDrafts) {
  const TestBatch batch({{.start = 9, .rows = 1}, {.start = 4, .rows = 3}, {.start = 6}}, 0);
  const DeviceArray<int32_t> accepted(std::vector<int32_t>{0, 2, 0});
  DeviceArray<int32_t> next(3);
  AdvanceStarts(batch.view(), accepted.get(), next.get(), TestStream().get());
  EXPECT_EQ(next.Download(), (std::vector<int32_t>{10, 7, 6}));
}

}  // namespace
}  // namespace baton::kernels::cuda
