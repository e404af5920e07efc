#include "common/gate.h"

#include <latch>
#include <thread>
#include <vector>

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

TEST(GateTest, SeveralEnterTogetherOrNotAtAll) {
  Gate gate;
  const std::vector<Gate::Pass> three = gate.TryEnter(3, 4);
  EXPECT_EQ(three.size(), 3u);
  EXPECT_TRUE(gate.TryEnter(2, 4).empty());
  EXPECT_EQ(gate.inside(), 3);
  EXPECT_EQ(gate.TryEnter(1, 4).size(), 1u);
  gate.Close();
  EXPECT_TRUE(gate.TryEnter(1, 4).empty());
}

TEST(GateTest, OfAllThatComeAtOnceAsManyEnterAsThereIsRoomFor) {
  constexpr size_t kComing = 8, kRoom = 4;
  for (int round = 0; round < 50; ++round) {
    Gate gate;
    std::latch all_are_here(kComing);
    std::vector<std::vector<Gate::Pass>> passes(kComing);
    {
      std::vector<std::jthread> threads;
      for (std::vector<Gate::Pass>& own : passes) {
        threads.emplace_back([&] {
          all_are_here.arrive_and_wait();
          own = gate.TryEnter(1, kRoom);
        });
      }
    }
    ASSERT_EQ(gate.inside(), static_cast<int>(kRoom));
  }
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
