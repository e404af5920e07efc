#include "kvtransfer/device_lane/lane_service.h"

#include <sys/socket.h>
#include <unistd.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvtransfer/shm/unix_socket.h"
#include "tests/kvtransfer/lane_ends.h"

namespace baton::kvtransfer {
namespace {

using ::baton::testing::Eventually;
using ::baton::testing::IsOk;

// A prefill worker that says what it likes.
class HostileLaneSender : public ::testing::Test {
 protected:
  HostileLaneSender() : memory_(AllocateMemfd(4096)) {}
  std::unique_ptr<LaneChannel> Connect(uint64_t says_bytes) {
    const StagingMemory said{
        memory_.owner, {memory_.bytes.data(), says_bytes}, Fd(dup(memory_.exported.get()))};
    return *ConnectUnixLane(fabric_.name(), server_.endpoint(), said);
  }
  bool Ended() {
    return Eventually([&] { return server_.service->connections() == 0; });
  }

  // Whether the receiver says what fulfils the condition.
  template <typename Condition>
  static bool Says(LaneChannel& channel, Condition condition) {
    return Eventually([&] {
      const auto message = channel.Receive();
      return message.ok() && message->has_value() && condition(std::get<LaneMessage>(**message));
    });
  }
  static bool IsReset(const LaneMessage& message) {
    return message.generation == 2 && std::holds_alternative<LaneReset>(message.body);
  }
  static void Place(LaneChannel& channel, uint64_t number, uint64_t offset, uint64_t bytes) {
    const uint64_t placed[] = {number, offset, bytes};
    const std::string said(reinterpret_cast<const char*>(placed), sizeof(placed));
    EXPECT_THAT(channel.Send({1, LaneLink{said}}), IsOk());
  }

  SharedHostFabric fabric_;
  LaneServer server_{fabric_};
  const StagingMemory memory_;
};

TEST_F(HostileLaneSender, MemoryThatIsSmallerThanSaidIsRefused) {
  const auto channel = Connect(4097);
  EXPECT_TRUE(Ended());
}

TEST_F(HostileLaneSender, GroupsOutsideOfItsMemoryEndTheGeneration) {
  const auto channel = Connect(4096);
  ASSERT_THAT(channel->Send({1, LaneReset{}}), IsOk());
  ASSERT_THAT(channel->Send({1, LaneOffer{.post = 1, .bytes = 64}}), IsOk());
  ASSERT_TRUE(Says(*channel, [](const LaneMessage& message) {
    const auto* grant = std::get_if<LaneGrant>(&message.body);
    return grant != nullptr && grant->sequence == 1;
  }));
  ASSERT_THAT(channel->Send({1, LaneCommit{1}}), IsOk());
  Place(*channel, 1, 4096 - 63, 64);
  EXPECT_TRUE(Says(*channel, IsReset));
}

TEST_F(HostileLaneSender, GroupsFarBeyondWhatIsReceivedEndTheGeneration) {
  const auto channel = Connect(4096);
  ASSERT_THAT(channel->Send({1, LaneReset{}}), IsOk());
  for (uint64_t number = 1; number <= kMaxGroupsInFlight; ++number) {
    Place(*channel, number, 0, 64);
  }
  // Is still in the generation.
  ASSERT_THAT(channel->Send({1, LaneOffer{.post = 1, .bytes = 64}}), IsOk());
  ASSERT_TRUE(Says(*channel, [](const LaneMessage& message) {
    return message.generation == 1 && std::holds_alternative<LaneGrant>(message.body);
  }));
  Place(*channel, kMaxGroupsInFlight + 1, 0, 64);
  EXPECT_TRUE(Says(*channel, IsReset));
}

TEST_F(HostileLaneSender, MoreOffersThanMayBeInFlightEndTheGeneration) {
  const auto channel = Connect(4096);
  ASSERT_THAT(channel->Send({1, LaneReset{}}), IsOk());
  for (uint64_t post = 1; post <= 100; ++post) {
    ASSERT_THAT(channel->Send({1, LaneOffer{.post = post, .bytes = 64}}), IsOk());
  }
  EXPECT_TRUE(Says(*channel, IsReset));
}

TEST_F(HostileLaneSender, AConnectionWithoutHelloIsClosedAndTheOthersAreNot) {
  const auto good = Connect(4096);
  absl::StatusOr<Fd> silent = shm::Connect(server_.endpoint());
  ASSERT_THAT(silent, IsOk());
  ASSERT_TRUE(Eventually([&] { return server_.service->connections() == 2; }));
  const auto channel = MakeUnixLane(*std::move(silent));
  EXPECT_TRUE(Eventually([&] { return !channel->Receive().ok(); }));
  EXPECT_TRUE(Eventually([&] { return server_.service->connections() == 1; }));
  ASSERT_THAT(good->Send({7, LaneReset{}}), IsOk());
  EXPECT_TRUE(Says(*good, [](const LaneMessage& message) { return message.generation == 7; }));
}

TEST_F(HostileLaneSender, ConnectionsBeyondTheLimitAreClosedAtOnce) {
  std::vector<std::unique_ptr<LaneChannel>> channels;
  while (channels.size() < LaneServiceOptions().connections) {
    channels.push_back(Connect(4096));
    ASSERT_TRUE(Eventually([&] { return server_.service->connections() == channels.size(); }));
  }
  absl::StatusOr<Fd> socket = shm::Connect(server_.endpoint());
  ASSERT_THAT(socket, IsOk());
  const auto refused = MakeUnixLane(*std::move(socket));
  EXPECT_TRUE(Eventually([&] { return !refused->Receive().ok(); }));
  EXPECT_EQ(server_.service->connections(), channels.size());
  // Those that were opened elsewhere as well.
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, ends), 0);
  server_.service->Add(MakeUnixLane(Fd(ends[0])));
  const auto added = MakeUnixLane(Fd(ends[1]));
  EXPECT_TRUE(Eventually([&] {
    EXPECT_LE(server_.service->connections(), channels.size());
    return !added->Receive().ok();
  }));
  channels.pop_back();
  EXPECT_TRUE(Eventually([&] { return server_.service->connections() == channels.size(); }));
  EXPECT_THAT(ProbeLane(fabric_, ConnectUnixLane, server_.endpoint()), IsOk());
}

TEST_F(HostileLaneSender, MessagesBeforeHelloEndTheConnection) {
  absl::StatusOr<Fd> socket = shm::Connect(server_.endpoint());
  ASSERT_THAT(socket, IsOk());
  const auto channel = MakeUnixLane(*std::move(socket));
  ASSERT_TRUE(Eventually([&] { return server_.service->connections() == 1; }));
  ASSERT_THAT(channel->Send({1, LaneReset{}}), IsOk());
  EXPECT_TRUE(Ended());
}

}  // namespace
}  // namespace baton::kvtransfer
