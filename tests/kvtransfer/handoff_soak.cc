// The models of handoff_model.h and lane_model.h for as long as one likes:
//   kvtransfer_soak [first seed] [seeds] [steps of each] [whole|partial|pin]
// The last word is how decode workers give out pages; only the first way is right.

#include <cstdlib>
#include <iostream>
#include <string_view>

#include "gtest/gtest.h"
#include "tests/kvtransfer/handoff_model.h"
#include "tests/kvtransfer/lane_model.h"

namespace {

using ::baton::kvtransfer::HandoffModel;

uint64_t g_first_seed = 1000;
uint64_t g_seeds = 10;
int64_t g_steps = 200'000;
HandoffModel::Grants g_grants = HandoffModel::Grants::kWholeAtOnce;

TEST(HandoffSoak, KeepsItsInvariants) {
  for (uint64_t seed = g_first_seed; seed < g_first_seed + g_seeds && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    HandoffModel model(seed, g_grants);
    model.Run(g_steps);
    model.Finish();
    const auto& outcomes = model.outcomes();
    std::cout << "seed " << seed << ": " << outcomes.both_ok << " moved, "
              << outcomes.only_receiver_ok << " moved but unanswered, " << outcomes.none_ok
              << " failed, " << outcomes.restarts << " restarts, " << outcomes.waited
              << " waited for pages, " << outcomes.late_frames << " late frames, "
              << outcomes.reused << " numbers used again\n";
  }
}

TEST(LaneSoak, KeepsItsInvariants) {
  for (uint64_t seed = g_first_seed; seed < g_first_seed + g_seeds && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    baton::kvtransfer::LaneModel model(seed);
    model.Run(g_steps);
    model.Finish();
    std::cout << "seed " << seed << ": " << model.accepted() << " groups moved, "
              << model.cancelled() << " cancelled, " << model.failed() << " failed, "
              << model.generations() << " generations\n";
  }
}

}  // namespace

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (argc > 1) g_first_seed = std::strtoull(argv[1], nullptr, 10);
  if (argc > 2) g_seeds = std::strtoull(argv[2], nullptr, 10);
  if (argc > 3) g_steps = std::strtoll(argv[3], nullptr, 10);
  if (argc > 4) {
    const std::string_view grants = argv[4];
    g_grants = grants == "partial" ? HandoffModel::Grants::kPartial
               : grants == "pin"   ? HandoffModel::Grants::kPinBeforeGrant
                                   : HandoffModel::Grants::kWholeAtOnce;
  }
  return RUN_ALL_TESTS();
}
