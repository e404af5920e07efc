#include "kvtransfer/fault/control_faults.h"

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "baton/v1/prefill.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace baton::kvtransfer {
namespace {

using ::baton::testing::StatusIs;
using ::testing::ElementsAre;
using Kind = Fault::Kind;
using Message = v1::PrefillRunRequest;

constexpr std::chrono::milliseconds kHeld{30};

Message Grant(uint64_t first_token) {
  Message message;
  message.mutable_grant()->set_first_token(first_token);
  return message;
}

// Grants 1, 2, 3 through a lane on which `fault` befalls the second.
class ControlFaultsTest : public ::testing::Test {
 protected:
  std::vector<uint64_t> After(Fault fault, bool wait = true) {
    ControlFaults faults({.at = {{.n = 2, .message = "grant", .fault = fault}}});
    const ControlFaults::Lane<Message> lane(
        &faults,
        [this](Message message) {
          MutexLock lock(mutex_);
          delivered_.push_back(message.grant().first_token());
        },
        [this](absl::Status why) { cut_ = std::move(why); });
    for (const uint64_t n : {1, 2, 3}) lane.Pass(Grant(n));
    if (wait) {
      Mutex mutex;
      bool done = false;
      lane.Follow([&] {
        MutexLock lock(mutex);
        done = true;
      });
      while (true) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        MutexLock lock(mutex);
        if (done) break;
      }
    }
    MutexLock lock(mutex_);
    return delivered_;
  }

  Mutex mutex_;
  std::vector<uint64_t> delivered_ ABSL_GUARDED_BY(mutex_);
  absl::Status cut_;
};

TEST_F(ControlFaultsTest, DropsTheOneThatIsMeant) {
  EXPECT_THAT(After({.kind = Kind::kDrop}), ElementsAre(1, 3));
}

TEST_F(ControlFaultsTest, DeliversTwice) {
  EXPECT_THAT(After({.kind = Kind::kDuplicate}), ElementsAre(1, 2, 2, 3));
}

TEST_F(ControlFaultsTest, LetsTheNextOvertake) {
  EXPECT_THAT(After({.kind = Kind::kReorder, .duration = std::chrono::hours(1)}),
              ElementsAre(1, 3, 2));
}

TEST_F(ControlFaultsTest, HoldsBackWhatComesBehindADelayedMessage) {
  EXPECT_THAT(After({.kind = Kind::kDelay, .duration = std::chrono::hours(1)}, false),
              ElementsAre(1));
  delivered_.clear();
  const auto started = std::chrono::steady_clock::now();
  EXPECT_THAT(After({.kind = Kind::kDelay, .duration = kHeld}), ElementsAre(1, 2, 3));
  EXPECT_GE(std::chrono::steady_clock::now() - started, kHeld);
}

TEST_F(ControlFaultsTest, StallsEveryLane) {
  ControlFaults faults({.at = {{.n = 1, .fault = {.kind = Kind::kStall, .duration = kHeld}}}});
  std::vector<int> order;
  const auto lane = [&](int n) {
    return ControlFaults::Lane<Message>(
        &faults,
        [&, n](Message) {
          MutexLock lock(mutex_);
          order.push_back(n);
        },
        [](absl::Status) {});
  };
  const auto first = lane(1);
  const auto second = lane(2);
  const auto started = std::chrono::steady_clock::now();
  first.Pass(Grant(1));
  second.Pass(Grant(2));
  while (true) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    MutexLock lock(mutex_);
    if (order.size() == 2) break;
  }
  EXPECT_GE(std::chrono::steady_clock::now() - started, kHeld);
}

TEST_F(ControlFaultsTest, CutsAndFailsTheStream) {
  After({.kind = Kind::kCut}, false);
  EXPECT_THAT(cut_, StatusIs(absl::StatusCode::kUnavailable));
  After({.kind = Kind::kFail}, false);
  EXPECT_THAT(cut_, StatusIs(absl::StatusCode::kInternal));
}

TEST_F(ControlFaultsTest, FlipsABitOfTheMessage) {
  // Tag of grant, its length, tag of first_token, its value: bit 24 is the lowest of the value.
  EXPECT_THAT(After({.kind = Kind::kCorrupt, .bit = 24}), ElementsAre(1, 3, 3));
}

TEST_F(ControlFaultsTest, TheEndOvertakesWhatIsHeld) {
  ControlFaults faults(
      {.at = {{.n = 1, .fault = {.kind = Kind::kDelay, .duration = std::chrono::hours(1)}}}});
  std::vector<std::string> order;
  const ControlFaults::Lane<Message> lane(
      &faults, [&](Message) { order.emplace_back("message"); }, [](absl::Status) {});
  lane.Pass(Grant(1));
  lane.End([&] { order.emplace_back("end"); });
  EXPECT_THAT(order, ElementsAre("end"));
}

TEST_F(ControlFaultsTest, WithoutAPlanEverythingPassesStraightThrough) {
  EXPECT_EQ(ControlFaults::Make({}), nullptr);
  std::vector<uint64_t> delivered;
  const ControlFaults::Lane<Message> lane(
      nullptr, [&](Message message) { delivered.push_back(message.grant().first_token()); },
      [](absl::Status) {});
  lane.Pass(Grant(5));
  lane.Follow([&] { delivered.push_back(6); });
  lane.End([&] { delivered.push_back(7); });
  EXPECT_THAT(delivered, ElementsAre(5, 6, 7));
}

}  // namespace
}  // namespace baton::kvtransfer
