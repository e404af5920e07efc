#include "kvtransfer/device_lane/lane_transport.h"

#include <algorithm>
#include <deque>
#include <iterator>
#include <set>
#include <thread>

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvtransfer/device_lane/lane_service.h"
#include "kvtransfer/device_lane/unix_lane.h"
#include "kvtransfer/frame.h"
#include "tests/kvtransfer/host_fabric.h"
#include "tests/kvtransfer/transport_cases.h"

namespace baton::kvtransfer {
namespace {

using ::baton::testing::IsOk;
using ::baton::testing::StatusIs;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Optional;

constexpr size_t kGroupBytes = size_t{256} << 10;

// Records of whole words, as those of every real layout.
CacheLayout TinyWordLayout() {
  CacheLayout layout = testing::TinyLayout();
  for (StreamLayout& stream : layout.streams) {
    stream.record_bytes = (stream.record_bytes + 3) / 4 * 4;
  }
  return layout;
}

template <typename Condition>
bool Soon(Condition condition) {
  for (int i = 0; i < 5000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

std::unique_ptr<Transport> NewTransport(Fabric& fabric, LaneTransportOptions options = {}) {
  options.group_bytes = kGroupBytes;
  auto transport = MakeLaneTransport(&fabric, ConnectUnixLane, options);
  EXPECT_THAT(transport, IsOk());
  return *std::move(transport);
}

std::unique_ptr<Sender> NewSender(Fabric& fabric, const LaneTransportOptions& options = {}) {
  return MakeSender({}, NewTransport(fabric, options));
}

std::unique_ptr<LaneService> StartService(Fabric& fabric, Receiver& receiver,
                                          Incarnation incarnation) {
  absl::StatusOr<shm::Fd> listener = shm::Listen(UnixLaneEndpoint(fabric.name(), incarnation));
  EXPECT_THAT(listener, IsOk());
  auto started =
      LaneService::Start(&fabric, &receiver, *std::move(listener), {.group_bytes = kGroupBytes});
  EXPECT_THAT(started, IsOk());
  return *std::move(started);
}

struct Server {
  explicit Server(Fabric& over, Incarnation named = NewIncarnation())
      : fabric(over), incarnation(named) {
    service = StartService(fabric, *receiver, incarnation);
  }
  std::string endpoint() const { return UnixLaneEndpoint(fabric.name(), incarnation); }

  Fabric& fabric;
  const Incarnation incarnation;
  TransferThread callbacks;
  std::unique_ptr<Receiver> receiver = MakeReceiver(&callbacks);
  std::unique_ptr<LaneService> service;
};

template <typename Fabric>
class LaneTransportTest : public ::testing::Test {
 protected:
  Fabric fabric_;
};
using Fabrics = ::testing::Types<SharedHostFabric, PairedHostFabric>;
TYPED_TEST_SUITE(LaneTransportTest, Fabrics);

TYPED_TEST(LaneTransportTest, MovesEveryByteOfManyHandoffs) {
  Server server(this->fabric_);
  auto sender = NewSender(this->fabric_);
  MoveManyHandoffs(*sender, *server.receiver, server.endpoint(),
                   [&](uint64_t i) { return Key(i, server.incarnation); });
}

TYPED_TEST(LaneTransportTest, SurvivesFaults) {
  Server server(this->fabric_);
  auto sender = MakeFaultySender(NewTransport(this->fabric_));
  MoveHandoffsThroughFaults(
      *sender, *server.receiver, server.endpoint(),
      [&](uint64_t i) { return Key(i, server.incarnation); }, TinyWordLayout());
  EXPECT_GT(server.receiver->stats().frames_by_verdict[2], 0u);
}

// Frames as large as they may be, with a bit flipped wherever one can be: each is sent again, and
// again is all it takes.
TYPED_TEST(LaneTransportTest, AFullFrameIsSentAgainWhereverItIsCorrupt) {
  Server server(this->fabric_);
  std::set<uint64_t> frames;
  size_t largest = 0;
  const FaultPlan plan = [&](const PostRequest& request) -> Fault {
    if (!frames.insert(request.post).second) return {};
    largest = std::max(largest, request.frame.size());
    const size_t table_end = kFrameHeaderBytes + PeekSegments(request.frame) * kSegmentBytes;
    // Magic, frame_bytes, attempt, segment_count (times 256), sequence; table, digest, payload.
    const size_t last = request.frame.size() - 1;
    const size_t bytes[] = {0, 8, 20, 37, 60, kFrameHeaderBytes, table_end, last / 2, last};
    return {.kind = Fault::Kind::kCorrupt, .bit = bytes[frames.size() % std::size(bytes)] * 8 + 2};
  };
  SenderOptions options;
  options.frame_bytes = kGroupBytes;
  const auto sender = MakeSender(options, WithFaults(NewTransport(this->fabric_), plan));
  std::list<LiveHandoff> runs;
  LiveHandoff& run = runs.emplace_back(Handoff::Options{.layout = testing::FlashLayout(),
                                                        .key = Key(1, server.incarnation),
                                                        .tokens = 5000,
                                                        .endpoint = server.endpoint()});
  run.Expect(*server.receiver);
  run.Open(*sender);
  run.handoff.Finish(*sender);
  ExpectMoved(runs);
  EXPECT_GT(frames.size(), 40u);
  EXPECT_GT(largest, kGroupBytes * 9 / 10);
  const SenderStats stats = sender->stats();
  EXPECT_EQ(stats.frames_by_verdict[static_cast<size_t>(FrameVerdict::kCorrupt)], frames.size());
  EXPECT_EQ(stats.frames_resent, frames.size());
  EXPECT_EQ(stats.posts_failed, 0u);
}

TYPED_TEST(LaneTransportTest, NobodyAtTheEndpointIsUnavailableAtOnce) {
  auto sender = NewSender(this->fabric_);
  LiveHandoff run({.layout = TinyWordLayout(),
                   .endpoint = UnixLaneEndpoint(this->fabric_.name(), NewIncarnation())});
  run.Open(*sender);
  run.handoff.Finish(*sender);
  EXPECT_THAT(run.Sent(), Optional(StatusIs(absl::StatusCode::kUnavailable)));
}

TYPED_TEST(LaneTransportTest, AServiceThatEndsFailsWhatIsOutstanding) {
  auto server = std::make_unique<Server>(this->fabric_);
  auto sender = NewSender(this->fabric_);
  LiveHandoff run({.layout = TinyWordLayout(),
                   .key = Key(1, server->incarnation),
                   .endpoint = server->endpoint()});
  run.Expect(*server->receiver);
  run.Open(*sender);
  run.handoff.Advance(*sender, 256);
  ASSERT_TRUE(Soon([&] { return server->receiver->stats().payload_bytes > 0; }));
  server.reset();
  run.handoff.Finish(*sender);
  EXPECT_THAT(run.Sent(), Optional(StatusIs(absl::StatusCode::kUnavailable)));
}

TYPED_TEST(LaneTransportTest, FewerLanesThanPeersTakeTurns) {
  Server first(this->fabric_);
  Server second(this->fabric_);
  Server third(this->fabric_);
  auto sender = NewSender(this->fabric_, {.groups = 4, .peer_groups = 2, .lanes = 1});
  std::list<LiveHandoff> runs;
  for (int round = 0; round < 3; ++round) {
    for (Server* server : {&first, &second, &third}) {
      LiveHandoff& run =
          runs.emplace_back(Handoff::Options{.layout = TinyWordLayout(),
                                             .key = Key(runs.size(), server->incarnation),
                                             .endpoint = server->endpoint()});
      run.Expect(*server->receiver);
      run.Open(*sender);
      run.handoff.Finish(*sender);
    }
  }
  ExpectMoved(runs);
}

TYPED_TEST(LaneTransportTest, AProbeGoesOverTheDevice) {
  Server server(this->fabric_);
  EXPECT_THAT(ProbeLane(this->fabric_, ConnectUnixLane, server.endpoint()), IsOk());
  EXPECT_TRUE(Soon([&] { return server.service->connections() == 0; }));
  EXPECT_THAT(ProbeLane(this->fabric_, ConnectUnixLane, UnixLaneEndpoint("none", 1)),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("connecting")));
}

// --- what only one of them has

TEST(SharedLaneTest, AReceiverWhoseDeviceIsStuckFailsItsHandoffAndWorksAfterwards) {
  SharedHostFabric fabric;
  Server server(fabric);
  auto sender = NewSender(fabric);
  fabric.stuck = true;
  EXPECT_THAT(ProbeLane(fabric, ConnectUnixLane, server.endpoint()),
              StatusIs(absl::StatusCode::kUnavailable));
  LiveHandoff stuck({.layout = TinyWordLayout(),
                     .key = Key(1, server.incarnation),
                     .endpoint = server.endpoint()});
  stuck.Expect(*server.receiver);
  stuck.Open(*sender);
  stuck.handoff.Finish(*sender);
  EXPECT_THAT(stuck.Sent(), Optional(StatusIs(absl::StatusCode::kUnavailable)));
  server.receiver->Abort(stuck.handoff.attempt(), absl::UnavailableError("the test ends it"));
  stuck.Received();
  fabric.stuck = false;
  LiveHandoff again({.layout = TinyWordLayout(),
                     .key = Key(2, server.incarnation),
                     .endpoint = server.endpoint()});
  again.Expect(*server.receiver);
  again.Open(*sender);
  again.handoff.Finish(*sender);
  EXPECT_THAT(again.Sent(), Optional(IsOk()));
  EXPECT_THAT(again.Received(), Optional(IsOk()));
}

TEST(PairedLaneTest, AFaultOfTheCommunicatorFailsWhatIsOnItAndTheNextIsMadeAnew) {
  PairedHostFabric fabric;
  Server server(fabric);
  auto sender = NewSender(fabric);
  const auto move = [&](uint64_t request) {
    LiveHandoff run({.layout = TinyWordLayout(),
                     .key = Key(request, server.incarnation),
                     .endpoint = server.endpoint()});
    run.Expect(*server.receiver);
    run.Open(*sender);
    run.handoff.Finish(*sender);
    const absl::Status sent = *run.Sent();
    server.receiver->Abort(run.handoff.attempt(), absl::UnavailableError("the test ends it"));
    run.Received();
    return sent;
  };
  EXPECT_THAT(move(1), IsOk());
  fabric.Fail();
  // Who notices before it has anything on the communicator loses nothing.
  EXPECT_THAT(move(2), AnyOf(IsOk(), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("fault"))));
  EXPECT_THAT(move(3), IsOk());
  EXPECT_GE(fabric.made(), 2u);
}

// A channel whose other end is the test.
class ScriptedLane final : public LaneChannel {
 public:
  struct Script {
    std::deque<LaneMessage> to_sender;
    std::vector<LaneMessage> said;
    bool broken = false;
  };
  explicit ScriptedLane(Script& script) : script_(script) {}

  absl::Status Send(const LaneMessage& message) override {
    if (script_.broken) return absl::UnavailableError("the channel breaks");
    script_.said.push_back(message);
    return absl::OkStatus();
  }
  Received Receive() override {
    if (script_.to_sender.empty()) return std::nullopt;
    const LaneMessage message = script_.to_sender.front();
    script_.to_sender.pop_front();
    return message;
  }

 private:
  Script& script_;
};

// What a sender says when its device has moved on may be what finds the channel broken.
TEST(LaneFaultTest, AChannelThatBreaksWhileTheDeviceIsPolledFailsWhatIsOutstanding) {
  constexpr uint64_t kPosts = kMaxGroupsInFlight + 1;
  SharedHostFabric fabric;
  ScriptedLane::Script script;
  auto transport = *MakeLaneTransport(
      &fabric, [&](auto, const auto&, const auto&) -> absl::StatusOr<std::unique_ptr<LaneChannel>> {
        return std::make_unique<ScriptedLane>(script);
      });
  const absl::StatusOr<Region> region = transport->Register(64);
  ASSERT_THAT(region, IsOk());
  for (uint64_t post = 1; post <= kPosts; ++post) {
    transport->Post(
        {.post = post, .endpoint = "peer", .region = region->id, .frame = region->memory});
  }
  script.to_sender = {{1, LaneReset{}}, {1, LaneGrant{.post = 1, .sequence = 1}}};
  EXPECT_TRUE(transport->Poll().empty());
  ASSERT_TRUE(std::holds_alternative<LaneLink>(script.said.back().body));  // the group is placed
  const uint64_t copied = 1;
  script.to_sender = {
      {1, LaneLink{std::string(reinterpret_cast<const char*>(&copied), sizeof(copied))}}};
  script.broken = true;  // there is room for the last offer, which cannot be said
  std::vector<Completion> ends = transport->Poll();
  transport->Cancel(kPosts);
  for (Completion& end : transport->Poll()) ends.push_back(std::move(end));
  ASSERT_EQ(ends.size(), kPosts);
  for (const Completion& end : ends) {
    EXPECT_THAT(end.status, AnyOf(StatusIs(absl::StatusCode::kUnavailable, HasSubstr("breaks")),
                                  StatusIs(absl::StatusCode::kCancelled)));
  }
  transport->Release(region->id);
}

// --- hostile senders

class HostileLaneSender : public ::testing::Test {
 protected:
  HostileLaneSender() : memory_(AllocateMemfd(4096)) {}
  std::unique_ptr<LaneChannel> Connect(uint64_t says_bytes) {
    const StagingMemory said{
        memory_.owner, {memory_.bytes.data(), says_bytes}, shm::Fd(dup(memory_.exported.get()))};
    return *ConnectUnixLane(fabric_.name(), server_.endpoint(), said);
  }
  bool Ended() {
    return Soon([&] { return server_.service->connections() == 0; });
  }

  // Whether the receiver says what fulfils the condition.
  template <typename Condition>
  static bool Says(LaneChannel& channel, Condition condition) {
    return Soon([&] {
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
  Server server_{fabric_};
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
  absl::StatusOr<shm::Fd> silent = shm::Connect(server_.endpoint());
  ASSERT_THAT(silent, IsOk());
  ASSERT_TRUE(Soon([&] { return server_.service->connections() == 2; }));
  const auto channel = MakeUnixLane(*std::move(silent));
  EXPECT_TRUE(Soon([&] { return !channel->Receive().ok(); }));
  EXPECT_TRUE(Soon([&] { return server_.service->connections() == 1; }));
  ASSERT_THAT(good->Send({7, LaneReset{}}), IsOk());
  EXPECT_TRUE(Says(*good, [](const LaneMessage& message) { return message.generation == 7; }));
}

TEST_F(HostileLaneSender, ConnectionsBeyondTheLimitAreClosedAtOnce) {
  std::vector<std::unique_ptr<LaneChannel>> channels;
  while (channels.size() < LaneServiceOptions().connections) {
    channels.push_back(Connect(4096));
    ASSERT_TRUE(Soon([&] { return server_.service->connections() == channels.size(); }));
  }
  absl::StatusOr<shm::Fd> socket = shm::Connect(server_.endpoint());
  ASSERT_THAT(socket, IsOk());
  const auto refused = MakeUnixLane(*std::move(socket));
  EXPECT_TRUE(Soon([&] { return !refused->Receive().ok(); }));
  EXPECT_EQ(server_.service->connections(), channels.size());
  // Those that were opened elsewhere as well.
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, ends), 0);
  server_.service->Add(MakeUnixLane(shm::Fd(ends[0])));
  const auto added = MakeUnixLane(shm::Fd(ends[1]));
  EXPECT_TRUE(Soon([&] {
    EXPECT_LE(server_.service->connections(), channels.size());
    return !added->Receive().ok();
  }));
  channels.pop_back();
  EXPECT_TRUE(Soon([&] { return server_.service->connections() == channels.size(); }));
  EXPECT_THAT(ProbeLane(fabric_, ConnectUnixLane, server_.endpoint()), IsOk());
}

TEST_F(HostileLaneSender, MessagesBeforeHelloEndTheConnection) {
  absl::StatusOr<shm::Fd> socket = shm::Connect(server_.endpoint());
  ASSERT_THAT(socket, IsOk());
  const auto channel = MakeUnixLane(*std::move(socket));
  ASSERT_TRUE(Soon([&] { return server_.service->connections() == 1; }));
  ASSERT_THAT(channel->Send({1, LaneReset{}}), IsOk());
  EXPECT_TRUE(Ended());
}

// --- processes that are killed

TEST(LaneDeathTest, AReceiverThatIsKilledIsKnownAtOnce) {
  SharedHostFabric fabric;
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const Incarnation incarnation = NewIncarnation();
  const pid_t child = fork();
  if (child == 0) {
    fabric.stuck = true;  // in the middle of a copy
    TransferThread callbacks;
    const auto receiver = MakeReceiver(&callbacks);
    const auto service = StartService(fabric, *receiver, incarnation);
    [[maybe_unused]] const ssize_t written = write(ends[1], "r", 1);
    while (true) pause();
  }
  char byte = 0;
  ASSERT_EQ(read(ends[0], &byte, 1), 1);
  auto sender = NewSender(fabric);
  LiveHandoff run({.layout = TinyWordLayout(),
                   .key = Key(1, incarnation),
                   .endpoint = UnixLaneEndpoint(fabric.name(), incarnation)});
  run.Open(*sender);
  run.handoff.Finish(*sender);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const auto killed = std::chrono::steady_clock::now();
  kill(child, SIGKILL);
  EXPECT_THAT(run.Sent(), Optional(StatusIs(absl::StatusCode::kUnavailable, HasSubstr("closed"))));
  EXPECT_LT(std::chrono::steady_clock::now() - killed, std::chrono::milliseconds(300));
  waitpid(child, nullptr, 0);
  for (const int end : ends) close(end);
}

TEST(LaneDeathTest, ASenderThatIsKilledLeavesNothing) {
  SharedHostFabric fabric;
  const Incarnation incarnation = NewIncarnation();
  const pid_t child = fork();
  if (child == 0) {
    const std::string endpoint = UnixLaneEndpoint(fabric.name(), incarnation);
    while (!ProbeLane(fabric, ConnectUnixLane, endpoint).ok()) usleep(1000);
    auto sender = NewSender(fabric);
    Handoff handoff({.layout = TinyWordLayout(), .key = Key(1, incarnation), .endpoint = endpoint});
    if (!sender->Open(handoff.outbound()).ok()) _exit(1);
    handoff.Advance(*sender, 256);
    while (true) pause();
  }
  Server server(fabric, incarnation);
  LiveHandoff run({.layout = TinyWordLayout(), .key = Key(1, incarnation)});
  run.Expect(*server.receiver);
  EXPECT_TRUE(Soon([&] { return server.receiver->stats().payload_bytes > 0; }));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(Soon([&] { return server.service->connections() == 0; }));
  server.receiver->Abort(Key(1, incarnation).attempt, absl::UnavailableError("the sender is gone"));
  EXPECT_THAT(run.Received(), Optional(StatusIs(absl::StatusCode::kUnavailable)));
}

}  // namespace
}  // namespace baton::kvtransfer
