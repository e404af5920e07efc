#include "prefill/start_queue.h"

#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace baton::prefill {
namespace {

using ::baton::testing::IsOk;
using ::baton::testing::StatusIs;
using ::testing::HasSubstr;

constexpr StartLimits kLimits = {.queue = 4, .ungranted_pages = 10, .ungranted_sequences = 2};

StartQueue::Entry Entry(uint64_t id, const std::string& decode_worker, int64_t pages) {
  return {.id = id, .decode_worker = decode_worker, .tokens = pages * 256, .pages = pages};
}

TEST(StartQueueTest, StartsTheOldestFirst) {
  StartQueue queue(kLimits);
  EXPECT_EQ(queue.Next(), nullptr);
  ASSERT_THAT(queue.Push(Entry(1, "a", 3)), IsOk());
  ASSERT_THAT(queue.Push(Entry(2, "b", 1)), IsOk());
  EXPECT_EQ(queue.waiting_tokens(), 4 * 256);
  EXPECT_EQ(queue.Next()->id, 1u);
  queue.Start(1);
  EXPECT_EQ(queue.Next()->id, 2u);
  EXPECT_EQ(queue.waiting_tokens(), 256);
}

TEST(StartQueueTest, RefusesByNameWhenFull) {
  StartQueue queue(kLimits);
  for (uint64_t id = 1; id <= 4; ++id) ASSERT_THAT(queue.Push(Entry(id, "a", 1)), IsOk());
  EXPECT_THAT(queue.Push(Entry(5, "b", 1)), StatusIs(absl::StatusCode::kResourceExhausted,
                                                     HasSubstr("prefill queue is full: 4")));
  queue.Remove(2);
  EXPECT_THAT(queue.Push(Entry(5, "b", 1)), IsOk());
}

TEST(StartQueueTest, AFullDecodeWorkerIsPassedOverByOthers) {
  StartQueue queue(kLimits);
  const StartQueue::Entry held = Entry(1, "full", 8);
  ASSERT_THAT(queue.Push(held), IsOk());
  ASSERT_THAT(queue.Push(Entry(2, "full", 3)), IsOk());
  ASSERT_THAT(queue.Push(Entry(3, "other", 9)), IsOk());
  queue.Start(1);
  EXPECT_EQ(queue.Next()->id, 3u);
  queue.Start(3);
  EXPECT_EQ(queue.Next(), nullptr);
  queue.Settle(held);
  EXPECT_EQ(queue.Next()->id, 2u) << "the grant came";
}

TEST(StartQueueTest, BoundsSequencesAsWellAsPages) {
  StartQueue queue(kLimits);
  for (uint64_t id = 1; id <= 3; ++id) ASSERT_THAT(queue.Push(Entry(id, "a", 1)), IsOk());
  queue.Start(1);
  queue.Start(2);
  EXPECT_EQ(queue.Next(), nullptr) << "two slots are held without a grant";
}

TEST(StartQueueTest, APromptLargerThanTheQuotaStartsAlone) {
  StartQueue queue(kLimits);
  const StartQueue::Entry small = Entry(1, "a", 1);
  ASSERT_THAT(queue.Push(small), IsOk());
  ASSERT_THAT(queue.Push(Entry(2, "a", 40)), IsOk());
  queue.Start(1);
  EXPECT_EQ(queue.Next(), nullptr);
  queue.Settle(small);
  EXPECT_EQ(queue.Next()->id, 2u);
}

}  // namespace
}  // namespace baton::prefill
