// The model of handoff_model.h for as long as one likes:
//   kvtransfer_soak [first seed] [seeds] [steps of each]

#include <cstdlib>
#include <iostream>

#include "gtest/gtest.h"
#include "tests/kvtransfer/handoff_model.h"

namespace {

uint64_t g_first_seed = 1000;
uint64_t g_seeds = 10;
int64_t g_steps = 200'000;

TEST(HandoffSoak, KeepsItsInvariants) {
  for (uint64_t seed = g_first_seed; seed < g_first_seed + g_seeds && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    baton::kvtransfer::HandoffModel model(seed);
    model.Run(g_steps);
    model.Finish();
    const auto& outcomes = model.outcomes();
    std::cout << "seed " << seed << ": " << outcomes.both_ok << " moved, "
              << outcomes.only_receiver_ok << " moved but unanswered, " << outcomes.none_ok
              << " failed, " << outcomes.restarts << " restarts\n";
  }
}

}  // namespace

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (argc > 1) g_first_seed = std::strtoull(argv[1], nullptr, 10);
  if (argc > 2) g_seeds = std::strtoull(argv[2], nullptr, 10);
  if (argc > 3) g_steps = std::strtoll(argv[3], nullptr, 10);
  return RUN_ALL_TESTS();
}
