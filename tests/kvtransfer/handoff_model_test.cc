#include "tests/kvtransfer/handoff_model.h"

#include "gtest/gtest.h"

namespace baton::kvtransfer {
namespace {

class HandoffModelTest : public ::testing::TestWithParam<uint64_t> {};

TEST_P(HandoffModelTest, KeepsItsInvariantsWhateverHappensInWhateverOrder) {
  HandoffModel model(GetParam());
  model.Run(50'000);
  model.Finish();
  // The dice reached every corner.
  const HandoffModel::Outcomes& outcomes = model.outcomes();
  EXPECT_GT(outcomes.both_ok, 50);
  EXPECT_GT(outcomes.only_receiver_ok, 0);
  EXPECT_GT(outcomes.none_ok, 50);
  EXPECT_GT(outcomes.restarts, 20);
  EXPECT_GT(outcomes.waited, 50);
  EXPECT_GT(outcomes.late_frames, 50);
  EXPECT_GT(outcomes.reused, 20);
  const SenderStats stats = model.sender_stats();
  EXPECT_GT(stats.frames_resent, 50u);
  EXPECT_GT(stats.posts_failed, 3u);
  for (const uint64_t frames : stats.frames_by_verdict) EXPECT_GT(frames, 5u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, HandoffModelTest, ::testing::Values(1, 2, 3, 4));

}  // namespace
}  // namespace baton::kvtransfer
