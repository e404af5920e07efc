#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvtransfer/device_lane/issue_order.h"
#include "tests/kvtransfer/lane_model.h"
#include "tests/testing/status_matchers.h"

namespace baton::kvtransfer {
namespace {

using ::baton::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(IssueOrderTest, IssuesInTheOrderOfTheNumbersWhateverTheOrderOfTheDecisions) {
  IssueOrder<char> order;
  EXPECT_TRUE(order.Commit(3, 'c'));
  EXPECT_TRUE(order.Decline(2));
  EXPECT_FALSE(order.TakeNext().has_value());
  EXPECT_TRUE(order.Commit(1, 'a'));
  EXPECT_EQ(order.TakeNext(), std::pair(uint64_t{1}, 'a'));
  EXPECT_EQ(order.TakeNext(), std::pair(uint64_t{3}, 'c'));
  EXPECT_FALSE(order.TakeNext().has_value());
}

TEST(IssueOrderTest, ANumberIsDecidedOnce) {
  IssueOrder<char> order;
  EXPECT_TRUE(order.Commit(1, 'a'));
  EXPECT_FALSE(order.Decline(1));
  EXPECT_TRUE(order.TakeNext().has_value());
  EXPECT_FALSE(order.Commit(1, 'b'));
}

// Both ends, with messages that the test delivers by hand.
class LaneTest : public ::testing::Test {
 protected:
  void Deliver() {
    while (!to_decode_.empty() || !to_prefill_.empty()) {
      for (const LaneMessage& message : std::exchange(to_decode_, {})) receiver_.OnMessage(message);
      for (const LaneMessage& message : std::exchange(to_prefill_, {})) sender_.OnMessage(message);
    }
  }
  void Post(uint64_t post) {
    frames_[post].fill(static_cast<std::byte>(post));
    sender_.Post(post, frames_[post]);
  }
  std::vector<std::pair<uint64_t, absl::StatusCode>> Ends() {
    receiver_.Poll();
    Deliver();
    std::vector<std::pair<uint64_t, absl::StatusCode>> ends;
    for (const Completion& end : sender_.Poll()) ends.emplace_back(end.post, end.status.code());
    return ends;
  }

  testing::FakeClock clock_;
  FakeDevice device_;
  std::map<uint64_t, std::array<std::byte, 32>> frames_;
  std::array<std::array<std::byte, 32>, 2> memory_;
  StagingGroups staging_{{memory_[0], memory_[1]}};
  std::vector<LaneMessage> to_decode_;
  std::vector<LaneMessage> to_prefill_;
  std::vector<int> landed_;
  LaneReceiver receiver_{{},
                         device_.ReceiverEnd(),
                         &staging_,
                         [this](std::span<const std::byte> frame, std::string*) {
                           landed_.push_back(static_cast<int>(frame[0]));
                           return FrameVerdict::kAccepted;
                         },
                         [this](LaneMessage message) { to_prefill_.push_back(message); },
                         clock_};
  LaneSender sender_{{},
                     device_.SenderEnd(),
                     [this](LaneMessage message) { to_decode_.push_back(message); },
                     clock_};
};

constexpr auto kOk = absl::StatusCode::kOk;
constexpr auto kCancelled = absl::StatusCode::kCancelled;
constexpr auto kUnavailable = absl::StatusCode::kUnavailable;

TEST_F(LaneTest, MovesGroupsWhenBothEndsAreThere) {
  Post(1);
  Post(2);
  Deliver();
  EXPECT_THAT(landed_, IsEmpty());
  EXPECT_TRUE(device_.Step());
  EXPECT_TRUE(device_.Step());
  EXPECT_THAT(Ends(), ElementsAre(std::pair(1, kOk), std::pair(2, kOk)));
  EXPECT_THAT(landed_, ElementsAre(1, 2));
  EXPECT_EQ(staging_.free(), 2u);
}

TEST_F(LaneTest, WaitsForStagingMemoryInsteadOfGrantingInPart) {
  for (uint64_t post = 1; post <= 3; ++post) Post(post);
  Deliver();
  EXPECT_EQ(receiver_.waiting_offers(), 1u);
  EXPECT_TRUE(device_.Step());
  EXPECT_THAT(Ends(), ElementsAre(std::pair(1, kOk)));
  EXPECT_EQ(receiver_.waiting_offers(), 0u);
}

TEST_F(LaneTest, APostThatIsCancelledBeforeItsGrantIsDeclinedAndHoldsUpNobody) {
  Deliver();
  Post(1);
  Post(2);
  sender_.Cancel(1);
  EXPECT_THAT(sender_.Poll(), ::testing::SizeIs(1));
  Deliver();
  EXPECT_TRUE(device_.Step());
  EXPECT_THAT(Ends(), ElementsAre(std::pair(2, kOk)));
  EXPECT_THAT(landed_, ElementsAre(2));
}

TEST_F(LaneTest, APostThatIsCancelledAfterItsCommitRunsAllTheSame) {
  Post(1);
  Deliver();
  sender_.Cancel(1);
  EXPECT_THAT(Ends(), IsEmpty());  // the peer counts on it
  EXPECT_TRUE(device_.Step());
  EXPECT_THAT(sender_.Poll(),
              ElementsAre(::testing::Field(&Completion::status, StatusIs(kCancelled))));
  EXPECT_EQ(sender_.generation(), 1u);
}

TEST_F(LaneTest, AGroupThatDoesNotRunIsGivenUpWithItsGenerationAndTheNextWorks) {
  Post(1);
  Deliver();
  clock_.Advance(std::chrono::milliseconds(1100));
  EXPECT_THAT(Ends(), ElementsAre(std::pair(1, kUnavailable)));
  Deliver();
  EXPECT_EQ(sender_.generation(), receiver_.generation());
  EXPECT_GT(sender_.generation(), 1u);
  EXPECT_EQ(staging_.free(), 2u);
  Post(2);
  Deliver();
  EXPECT_TRUE(device_.Step());
  EXPECT_THAT(Ends(), ElementsAre(std::pair(2, kOk)));
}

TEST_F(LaneTest, AFaultOfTheDeviceFailsWhatIsOnItAndTheLinkIsMadeAnew) {
  Post(1);
  Deliver();
  device_.Fail();
  EXPECT_THAT(Ends(), ElementsAre(std::pair(1, kUnavailable)));
  Deliver();
  Post(2);
  Deliver();
  EXPECT_TRUE(device_.Step());
  EXPECT_THAT(Ends(), ElementsAre(std::pair(2, kOk)));
}

TEST_F(LaneTest, AnswersOfAnEarlierGenerationChangeNothing) {
  Post(1);
  Deliver();
  EXPECT_TRUE(device_.Step());
  receiver_.Poll();
  const std::vector<LaneMessage> late = std::exchange(to_prefill_, {});
  device_.Fail();
  EXPECT_THAT(Ends(), ElementsAre(std::pair(1, kUnavailable)));
  Deliver();
  Post(2);
  Deliver();
  for (const LaneMessage& message : late) sender_.OnMessage(message);
  EXPECT_THAT(sender_.Poll(), IsEmpty());
}

TEST_F(LaneTest, APeerThatBreaksTheProtocolLosesItsGeneration) {
  Post(1);
  Deliver();
  receiver_.OnMessage({.generation = 1, .body = LaneCommit{.sequence = 7}});
  Deliver();
  EXPECT_EQ(sender_.generation(), 2u);
  EXPECT_THAT(Ends(), ElementsAre(std::pair(1, kUnavailable)));
}

// --- bounds, which the sender keeps and the receiver insists on

TEST_F(LaneTest, MorePostsThanMayBeInFlightAreOfferedInTurn) {
  constexpr uint64_t kPosts = 3 * kMaxGroupsInFlight;
  Deliver();
  for (uint64_t post = 1; post <= kPosts; ++post) Post(post);
  EXPECT_EQ(to_decode_.size(), kMaxGroupsInFlight);
  std::vector<std::pair<uint64_t, absl::StatusCode>> ends;
  for (int i = 0; i < 1000 && ends.size() < kPosts; ++i) {
    Deliver();
    device_.Step();
    for (const auto& end : Ends()) ends.push_back(end);
  }
  ASSERT_EQ(ends.size(), kPosts);
  for (const auto& [post, code] : ends) EXPECT_EQ(code, kOk) << post;
  EXPECT_EQ(sender_.generation(), 1u);
}

TEST_F(LaneTest, CancelledPostsThatWaitForMemoryDoNotPileUpAtTheReceiver) {
  Deliver();
  const auto first = staging_.Take();
  const auto second = staging_.Take();
  for (uint64_t post = 1; post <= 100; ++post) {
    Post(post);
    Deliver();
    sender_.Cancel(post);
  }
  EXPECT_EQ(receiver_.waiting_offers(), kMaxGroupsInFlight);
  Post(101);
  staging_.Return(*first);
  staging_.Return(*second);
  EXPECT_THAT(Ends(), ::testing::SizeIs(100));
  EXPECT_TRUE(device_.Step());
  EXPECT_THAT(Ends(), ElementsAre(std::pair(101, kOk)));
  EXPECT_EQ(sender_.generation(), 1u);
}

TEST_F(LaneTest, MoreOffersThanMayBeInFlightEndTheGeneration) {
  receiver_.OnMessage({.generation = 1, .body = LaneReset{}});
  for (uint64_t post = 1; post <= memory_.size() + kMaxGroupsInFlight; ++post) {
    receiver_.OnMessage({.generation = 1, .body = LaneOffer{.post = post, .bytes = 32}});
  }
  EXPECT_EQ(receiver_.generation(), 1u);
  receiver_.OnMessage({.generation = 1, .body = LaneOffer{.post = 99, .bytes = 32}});
  EXPECT_EQ(receiver_.generation(), 2u);
  EXPECT_EQ(receiver_.waiting_offers(), 0u);
  EXPECT_EQ(staging_.free(), memory_.size());
}

TEST_F(LaneTest, TooMuchForALinkThatIsNotThereEndsTheGenerationOfTheReceiver) {
  for (size_t i = 0; i < kMaxEarlyLinks; ++i) {
    receiver_.OnMessage({.generation = 1, .body = LaneLink{"early"}});
  }
  EXPECT_EQ(receiver_.generation(), 1u);
  receiver_.OnMessage({.generation = 1, .body = LaneLink{"too much"}});
  EXPECT_EQ(receiver_.generation(), 2u);
}

// --- hostile receivers

class HostileLaneReceiver : public ::testing::Test {
 protected:
  HostileLaneReceiver() {
    Say(LaneReset{});
    for (uint64_t post = 1; post <= 3; ++post) sender_.Post(post, frame_);
  }
  template <typename Body>
  void Say(Body body) {
    sender_.OnMessage({.generation = 1, .body = std::move(body)});
  }
  // Everything outstanding has failed, saying why.
  void ExpectReset(const char* why) {
    EXPECT_EQ(sender_.generation(), 2u);
    const std::vector<Completion> ends = sender_.Poll();
    EXPECT_THAT(ends, Not(IsEmpty()));
    for (const Completion& end : ends) {
      EXPECT_THAT(end.status, StatusIs(kUnavailable, HasSubstr(why)));
    }
  }

  testing::FakeClock clock_;
  FakeDevice device_;
  std::array<std::byte, 32> frame_{};
  std::vector<LaneMessage> said_;
  LaneSender sender_{
      {}, device_.SenderEnd(), [this](LaneMessage message) { said_.push_back(message); }, clock_};
};

TEST_F(HostileLaneReceiver, AnAnswerToAGroupThatIsNotIssuedYetEndsTheGeneration) {
  Say(LaneGrant{.post = 1, .sequence = 2});
  Say(LaneAnswer{.sequence = 2});
  ExpectReset("number 2 was answered");
  Say(LaneGrant{.post = 77, .sequence = 1});  // of the generation before
  EXPECT_EQ(sender_.generation(), 2u);
}

TEST_F(HostileLaneReceiver, AnAnswerToANumberThatWasNeverGrantedEndsTheGeneration) {
  Say(LaneAnswer{.sequence = 7});
  ExpectReset("number 7 was answered");
}

TEST_F(HostileLaneReceiver, AnAnswerToANumberThatWasDeclinedEndsTheGeneration) {
  sender_.Cancel(1);
  Say(LaneGrant{.post = 1, .sequence = 1});
  EXPECT_THAT(sender_.Poll(), ::testing::SizeIs(1));
  Say(LaneAnswer{.sequence = 1});
  ExpectReset("number 1 was answered");
}

TEST_F(HostileLaneReceiver, ASecondAnswerEndsTheGeneration) {
  Say(LaneGrant{.post = 1, .sequence = 1});
  Say(LaneAnswer{.sequence = 1});
  EXPECT_THAT(sender_.Poll(),
              ElementsAre(::testing::Field(&Completion::status, baton::testing::IsOk())));
  Say(LaneAnswer{.sequence = 1});
  ExpectReset("number 1 was answered twice");
}

// The group of a cancelled post runs and is answered like any other, once.
TEST_F(HostileLaneReceiver, ACancelledGroupIsAnsweredOnce) {
  auto receiver = device_.ReceiverEnd()(1, nullptr);
  std::array<std::byte, 32> to{};
  Say(LaneGrant{.post = 1, .sequence = 1});
  sender_.Cancel(1);
  receiver->Receive(1, to);
  EXPECT_TRUE(device_.Step());
  EXPECT_THAT(sender_.Poll(),
              ElementsAre(::testing::Field(&Completion::status, StatusIs(kCancelled))));
  Say(LaneAnswer{.sequence = 1});
  EXPECT_EQ(sender_.generation(), 1u);
  Say(LaneAnswer{.sequence = 1});
  ExpectReset("number 1 was answered twice");
}

TEST_F(HostileLaneReceiver, ANumberBeyondWhatWasOfferedEndsTheGeneration) {
  Say(LaneGrant{.post = 77, .sequence = 3});
  EXPECT_EQ(sender_.generation(), 1u);
  Say(LaneGrant{.post = 77, .sequence = 4});
  ExpectReset("number 4 was granted");
}

TEST_F(HostileLaneReceiver, TooMuchForALinkThatIsNotThereEndsTheGeneration) {
  sender_.OnMessage({.generation = 2, .body = LaneLink{"early"}});
  for (size_t i = 1; i < kMaxEarlyLinks; ++i) {
    sender_.OnMessage({.generation = 2, .body = LaneLink{"early"}});
  }
  EXPECT_EQ(sender_.generation(), 2u);
  sender_.OnMessage({.generation = 2, .body = LaneLink{"too much"}});
  EXPECT_EQ(sender_.generation(), 3u);
}

TEST(FakeDeviceTest, HangsWhenGroupsAreIssuedOutOfOrder) {
  FakeDevice device;
  auto sender = device.SenderEnd()(1, nullptr);
  auto receiver = device.ReceiverEnd()(1, nullptr);
  std::array<std::byte, 8> from{};
  std::array<std::byte, 8> to{};
  sender->Send(2, from);
  sender->Send(1, from);
  receiver->Receive(1, to);
  receiver->Receive(2, to);
  EXPECT_FALSE(device.Step());
  EXPECT_FALSE(device.Step());
  EXPECT_EQ(*sender->Done(), 0u);
  EXPECT_EQ(device.hangs(), 1);
}

class LaneModelTest : public ::testing::TestWithParam<uint64_t> {};

TEST_P(LaneModelTest, KeepsItsInvariantsWhateverHappensInWhateverOrder) {
  LaneModel model(GetParam());
  model.Run(50'000);
  model.Finish();
  EXPECT_GT(model.accepted(), 500);
  EXPECT_GT(model.cancelled(), 100);
  EXPECT_GT(model.failed(), 5);
  EXPECT_GT(model.generations(), 5u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, LaneModelTest, ::testing::Values(1, 2, 3, 4));

}  // namespace
}  // namespace baton::kvtransfer
