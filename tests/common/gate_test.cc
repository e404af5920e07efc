#include "common/gate.h"

#include <thread>

#include "gtest/gtest.h"

namespace baton {
namespace {

using namespace std::chrono_literals;

TEST(GateTest, NothingEntersAClosedGate) {
  Gate gate;
  EXPECT_TRUE(gate.TryEnter());
  gate.Close();
  EXPECT_FALSE(gate.TryEnter());
  EXPECT_TRUE(gate.closed());
  EXPECT_EQ(gate.inside(), 0);
}

TEST(GateTest, AMovedPassLeavesOnce) {
  Gate gate;
  Gate::Pass first = gate.TryEnter();
  Gate::Pass second = std::move(first);
  EXPECT_FALSE(first);  // NOLINT(bugprone-use-after-move): that it is empty is the point
  EXPECT_EQ(gate.inside(), 1);
  first = std::move(second);
  second = Gate::Pass();
  EXPECT_EQ(gate.inside(), 1);
  first = Gate::Pass();
  EXPECT_EQ(gate.inside(), 0);
}

TEST(GateTest, AssigningAPassLeavesTheOldOne) {
  Gate one, other;
  Gate::Pass pass = one.TryEnter();
  pass = other.TryEnter();
  EXPECT_EQ(one.inside(), 0);
  EXPECT_EQ(other.inside(), 1);
}

TEST(GateTest, AnOpenGateIsNeverDrained) {
  Gate gate;
  EXPECT_FALSE(gate.WaitEmpty(1ms));
}

TEST(GateTest, WaitEmptyGivesUpWhileSomeoneIsInside) {
  Gate gate;
  const Gate::Pass pass = gate.TryEnter();
  gate.Close();
  EXPECT_FALSE(gate.WaitEmpty(1ms));
}

TEST(GateTest, WaitEmptyReturnsWhenTheLastLeaves) {
  Gate gate;
  Gate::Pass pass = gate.TryEnter();
  gate.Close();
  std::jthread leaver([&] { pass = Gate::Pass(); });
  EXPECT_TRUE(gate.WaitEmpty(1h));
  leaver.join();
}

TEST(GateTest, CloseWakesAWaiterOfAnEmptyGate) {
  Gate gate;
  std::jthread closer([&] { gate.Close(); });
  EXPECT_TRUE(gate.WaitEmpty(1h));
  closer.join();
}

}  // namespace
}  // namespace baton
