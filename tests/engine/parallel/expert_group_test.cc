#include "engine/parallel/expert_group.h"

#include <atomic>
#include <future>
#include <thread>

#include "engine/parallel/rendezvous.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/parallel/free_address.h"
#include "tests/testing/status_matchers.h"

namespace baton::engine {
namespace {

using ::baton::testing::IsOk;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using std::chrono::milliseconds;
using std::chrono::seconds;

// The ranks of a group in this process, each as its own thread would see it.
class ExpertGroupTest : public ::testing::Test {
 protected:
  struct Rank {
    std::promise<absl::Status> failed;
    std::future<absl::Status> fault = failed.get_future();
    std::unique_ptr<ExpertGroup> group;
  };

  ExpertGroupOptions Options(int rank, int size) {
    ExpertGroupOptions options{
        .size = size, .rank = rank, .address = address_, .join_timeout = seconds(10)};
    options.on_fault = [&failed = ranks_[rank].failed](const absl::Status& why) {
      failed.set_value(why);
    };
    return options;
  }
  void JoinAll(int size, const std::function<void(ExpertGroupOptions&)>& change = {}) {
    ranks_ = std::vector<Rank>(size);
    OnAll([&](int rank) {
      ExpertGroupOptions options = Options(rank, size);
      if (change) change(options);
      auto joined = ExpertGroup::Join(options);
      ASSERT_THAT(joined.status(), IsOk());
      ranks_[rank].group = *std::move(joined);
    });
  }
  void OnAll(const std::function<void(int rank)>& run) {
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      threads.emplace_back(run, static_cast<int>(rank));
    }
    for (std::thread& thread : threads) thread.join();
  }
  ExpertGroup& Group(int rank) { return *ranks_[rank].group; }
  std::string Fault(int rank) {
    if (ranks_[rank].fault.wait_for(seconds(10)) != std::future_status::ready) return "none";
    return std::string(ranks_[rank].fault.get().message());
  }

  const std::string address_ = FreeAddress();
  std::vector<Rank> ranks_;
};

TEST(ExpertShareTest, EveryExpertBelongsToOneRank) {
  for (const int ranks : {1, 2, 3, 7, 8}) {
    int next = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const ExpertShare share{.rank = rank, .ranks = ranks};
      EXPECT_EQ(share.first(256), next);
      EXPECT_GE(share.count(256), 256 / ranks);
      next += share.count(256);
    }
    EXPECT_EQ(next, 256);
  }
}

TEST_F(ExpertGroupTest, RowsReachTheirRanks) {
  JoinAll(3);
  // From a to b: 10 a + b bytes of value 16 a + b, in two rounds.
  const auto size = [](int from, int to) { return static_cast<size_t>(10 * from + to); };
  const auto value_of = [](int from, int to, int round) {
    return static_cast<uint8_t>(16 * from + to + round);
  };
  OnAll([&](int rank) {
    for (int round = 0; round < 2; ++round) {
      std::vector<std::vector<std::byte>> sent;
      std::vector<std::vector<std::byte>> received;
      for (int other = 0; other < 3; ++other) {
        sent.emplace_back(size(rank, other), std::byte{value_of(rank, other, round)});
        received.emplace_back(size(other, rank));
      }
      const std::vector<std::span<const std::byte>> to(sent.begin(), sent.end());
      const std::vector<std::span<std::byte>> from(received.begin(), received.end());
      EXPECT_THAT(Group(rank).Exchange(to, from), IsOk());
      for (int other = 0; other < 3; ++other) {
        const std::byte value{value_of(other, rank, round)};
        EXPECT_EQ(received[other], std::vector<std::byte>(size(other, rank), value));
      }
    }
  });
}

TEST_F(ExpertGroupTest, AllRanksSeeTheSameStepsWhateverEachWants) {
  JoinAll(3);
  std::vector<std::vector<Step>> seen(3);
  std::atomic<int> done = 0;
  OnAll([&](int rank) {
    ExpertGroup& group = Group(rank);
    const auto run = [&](const Wish& wish) {
      do {
        seen[rank].push_back(*group.Agree(wish));
      } while (seen[rank].back().rows[rank] == 0);
    };
    for (int pass = 0; pass < 20; ++pass) {
      if (pass % 4 == rank) group.Rest();  // and gets work at once
      if ((pass + rank) % 3 == 0) run({.kind = PassKind::kDraft, .rows = rank + 1});
      run({.kind = PassKind::kTrunk, .rows = 10 * pass + rank + 1});
    }
    for (++done; done < 3; std::this_thread::yield()) {
      group.Rest();
      if (const std::optional<Step> step = group.TakeCall()) seen[rank].push_back(*step);
    }
  });
  const size_t common = std::min({seen[0].size(), seen[1].size(), seen[2].size()});
  EXPECT_GE(common, 20u);
  for (size_t i = 0; i < common; ++i) {
    EXPECT_EQ(seen[0][i].number, i + 1);
    for (const int rank : {1, 2}) {
      EXPECT_EQ(seen[rank][i].number, i + 1);
      EXPECT_EQ(seen[rank][i].kind, seen[0][i].kind);
      EXPECT_EQ(seen[rank][i].rows, seen[0][i].rows);
    }
  }
}

TEST_F(ExpertGroupTest, ARankAtRestIsCalledOnceAStep) {
  JoinAll(2);
  for (const int rester : {0, 1}) {
    ExpertGroup& resting = Group(rester);
    ExpertGroup& working = Group(1 - rester);
    std::promise<void> called;
    resting.OnStep([&] { called.set_value(); });
    resting.Rest();
    resting.Rest();  // again: it has been said
    const Step step = *working.Agree({.kind = PassKind::kTrunk, .rows = 4});
    called.get_future().wait();
    EXPECT_EQ(step.rows[1 - rester], 4);
    const std::optional<Step> joined = resting.TakeCall();
    ASSERT_TRUE(joined);
    EXPECT_EQ(joined->number, step.number);
    EXPECT_EQ(joined->rows[rester], 0);
    EXPECT_FALSE(resting.TakeCall());
    resting.OnStep({});
  }
}

TEST_F(ExpertGroupTest, ADeadRankEndsTheOthersAndIsNamed) {
  for (const int victim : {1, 0}) {
    JoinAll(3);
    const int waiting = 2;
    std::future<absl::StatusOr<Step>> blocked = std::async(std::launch::async, [&] {
      return Group(waiting).Agree({.kind = PassKind::kTrunk, .rows = 1});
    });
    ranks_[victim].group.reset();
    const std::string name = "rank " + std::to_string(victim) + " ";
    EXPECT_THAT(std::string(blocked.get().status().message()), HasSubstr(name));
    EXPECT_THAT(Fault(waiting), HasSubstr(name));
    EXPECT_THAT(Fault(1 - victim), HasSubstr(name));
  }
}

TEST_F(ExpertGroupTest, ASilentRankEndsTheOthersAndIsNamed) {
  ranks_ = std::vector<Rank>(2);
  // It greets, then lives on without a word, as a stopped process does.
  auto silent = std::async(std::launch::async, [&] {
    return Meet({.size = 2, .rank = 1, .address = address_, .facts = {}, .timeout = seconds(10)});
  });
  ExpertGroupOptions options = Options(0, 2);
  options.silence = milliseconds(400);
  ranks_[0].group = *ExpertGroup::Join(options);
  const auto links = silent.get();
  EXPECT_THAT(Fault(0), HasSubstr("rank 1 says nothing any more"));
}

TEST_F(ExpertGroupTest, RowsOfAnotherSizeEndTheGroupAndNameTheRank) {
  JoinAll(2);
  OnAll([&](int rank) {
    const std::vector<std::byte> sent(4);
    std::vector<std::byte> received(rank == 0 ? 3 : 4);
    std::vector<std::span<const std::byte>> to(2, {sent.data(), 0});
    std::vector<std::span<std::byte>> from(2, {received.data(), 0});
    to[1 - rank] = sent;
    from[1 - rank] = received;
    const absl::Status status = Group(rank).Exchange(to, from);
    EXPECT_TRUE(rank == 1 || status.message() == "rank 1 sends 4 bytes, not 3") << status;
  });
  EXPECT_THAT(Fault(0), HasSubstr("rank 1 sends 4 bytes, not 3"));
  EXPECT_THAT(Fault(1), HasSubstr("rank 1 sends 4 bytes, not 3"));
}

TEST_F(ExpertGroupTest, OnlyTheFirstSaysWhatIsDone) {
  for (const FrameType type : {FrameType::kStep, FrameType::kDissolved}) {
    ranks_ = std::vector<Rank>(2);
    auto meeting = std::async(std::launch::async, [&] {
      return Meet({.size = 2, .rank = 1, .address = address_, .facts = {}, .timeout = seconds(10)});
    });
    ranks_[0].group = *ExpertGroup::Join(Options(0, 2));
    const auto links = meeting.get();
    ASSERT_THAT(links.status(), IsOk());
    EXPECT_THAT(links->at(0).socket.Send(EncodeHeader({.type = type, .from = 1}, 0)), IsOk());
    EXPECT_THAT(Fault(0), HasSubstr("rank 1 says what is not for it to say"));
    ranks_[0].group.reset();
  }
}

// Also one that the others would only have to join.
TEST_F(ExpertGroupTest, AStepThatCannotBeEndsTheGroupAndNamesTheFirst) {
  ranks_ = std::vector<Rank>(2);
  auto meeting = std::async(std::launch::async, [&] {
    return Meet({.size = 2, .rank = 0, .address = address_, .facts = {}, .timeout = seconds(10)});
  });
  ExpertGroupOptions options = Options(1, 2);
  options.max_positions = 8192;
  ranks_[1].group = *ExpertGroup::Join(options);
  const auto links = meeting.get();
  ASSERT_THAT(links.status(), IsOk());
  const auto payload =
      EncodePass({.kind = PassKind::kTrunk, .rows = {1, 0}, .sequence_rows = 1, .positions = 8193});
  const Frame frame{.type = FrameType::kStep, .to = 1, .number = 1};
  EXPECT_THAT(links->at(0).socket.Send(EncodeHeader(frame, payload.size())), IsOk());
  EXPECT_THAT(links->at(0).socket.Send(payload), IsOk());
  EXPECT_THAT(Fault(1), HasSubstr("rank 0 asks for sequences of 1 rows and 8193 positions"));
}

TEST_F(ExpertGroupTest, ARankThatKeepsTheOthersWaitingEndsThemAndIsNamed) {
  JoinAll(2, [](ExpertGroupOptions& options) { options.stall = milliseconds(300); });
  std::this_thread::sleep_for(milliseconds(600));  // loading takes its time
  OnAll([&](int rank) {
    EXPECT_THAT(Group(rank).Agree({.kind = PassKind::kStart}).status(), IsOk());
  });
  Group(0).Rest();
  EXPECT_THAT(Fault(0), HasSubstr("rank 1 is stuck in a step"));
  EXPECT_THAT(Fault(1), HasSubstr("rank 1 is stuck in a step"));
}

TEST_F(ExpertGroupTest, ARankThatNeverStartsEndsTheOthersAndIsNamed) {
  JoinAll(2, [](ExpertGroupOptions& options) { options.start = milliseconds(300); });
  const auto waiting =
      std::async(std::launch::async, [&] { return Group(0).Agree({.kind = PassKind::kStart}); });
  EXPECT_THAT(Fault(0), HasSubstr("rank 1 has not come to the first step"));
  EXPECT_THAT(Fault(1), HasSubstr("rank 1 has not come to the first step"));
}

TEST_F(ExpertGroupTest, AnUnhealthyDeviceEndsTheGroup) {
  JoinAll(2);
  Group(1).Watch([] { return absl::InternalError("NCCL is unhappy"); });
  EXPECT_THAT(Fault(0), HasSubstr("rank 1: NCCL is unhappy"));
  EXPECT_THAT(Fault(1), HasSubstr("rank 1: NCCL is unhappy"));
}

TEST_F(ExpertGroupTest, AllLeaveTogether) {
  JoinAll(3);
  EXPECT_FALSE(Group(1).Leave(milliseconds(50)));  // the others have work
  std::vector<char> left(3);
  OnAll([&](int rank) { left[rank] = Group(rank).Leave(seconds(10)); });
  EXPECT_THAT(left, ElementsAre(1, 1, 1));
  for (Rank& rank : ranks_) rank.group.reset();
  for (Rank& rank : ranks_) {
    EXPECT_EQ(rank.fault.wait_for(seconds(0)), std::future_status::timeout);
  }
}

}  // namespace
}  // namespace baton::engine
