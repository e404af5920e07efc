#include "engine/chunk_scheduler.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<int32_t> Schedule(std::vector<int64_t> remaining, const ChunkLimits& limits) {
  std::vector<PrefillWork> queue;
  for (const int64_t tokens : remaining) queue.push_back({.remaining_tokens = tokens});
  return ScheduleChunks(queue, limits);
}

TEST(ChunkSchedulerTest, AnEmptyQueueGetsNothing) { EXPECT_THAT(Schedule({}, {}), IsEmpty()); }

TEST(ChunkSchedulerTest, APromptShorterThanAChunkIsComputedWhole) {
  EXPECT_THAT(Schedule({1}, {}), ElementsAre(1));
  EXPECT_THAT(Schedule({1024}, {}), ElementsAre(1024));
}

TEST(ChunkSchedulerTest, ALongPromptGetsOneChunkEvenWhenItIsAlone) {
  EXPECT_THAT(Schedule({100000}, {.step_tokens = 4096, .chunk_tokens = 1024}), ElementsAre(1024));
}

TEST(ChunkSchedulerTest, AShortPromptIsNotStuckBehindALongOne) {
  EXPECT_THAT(Schedule({100000, 10}, {.step_tokens = 100, .chunk_tokens = 60}),
              ElementsAre(60, 10));
}

TEST(ChunkSchedulerTest, TheOldestComeFirstAndTheLastGetsWhatIsLeft) {
  EXPECT_THAT(Schedule({50, 50, 50}, {.step_tokens = 120, .chunk_tokens = 60}),
              ElementsAre(50, 50, 20));
  EXPECT_THAT(Schedule({60, 60, 60}, {.step_tokens = 120, .chunk_tokens = 60}),
              ElementsAre(60, 60, 0));
}

TEST(ChunkSchedulerTest, NeverMoreThanTheStepHoldsWhateverTheChunk) {
  EXPECT_THAT(Schedule({100, 100}, {.step_tokens = 10, .chunk_tokens = 60}), ElementsAre(10, 0));
}

TEST(ChunkSchedulerTest, NoMoreSequencesThanTheLimit) {
  EXPECT_THAT(Schedule({1, 1, 1, 1}, {.step_tokens = 100, .chunk_tokens = 60, .max_sequences = 2}),
              ElementsAre(1, 1, 0, 0));
}

TEST(ChunkSchedulerTest, RemainingTokensBeyond32BitsAreFine) {
  EXPECT_THAT(Schedule({int64_t{1} << 40}, {.step_tokens = 64, .chunk_tokens = 64}),
              ElementsAre(64));
}

TEST(ChunkSchedulerDeathTest, LimitsOfNothingWouldStallForEver) {
  EXPECT_DEATH(Schedule({1}, {.step_tokens = 0}), "step_tokens > 0");
  EXPECT_DEATH(Schedule({0}, {}), "nothing to compute");
}

}  // namespace
}  // namespace baton::engine
