#include "kvtransfer/device_lane/lane_transport.h"

#include <algorithm>
#include <deque>
#include <iterator>
#include <list>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvtransfer/frame.h"
#include "tests/kvtransfer/lane_ends.h"

namespace baton::kvtransfer {
namespace {

using ::baton::testing::Eventually;
using ::baton::testing::IsOk;
using ::baton::testing::StatusIs;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Optional;

template <typename Fabric>
class LaneTransportTest : public ::testing::Test {
 protected:
  Fabric fabric_;
};
using Fabrics = ::testing::Types<SharedHostFabric, PairedHostFabric>;
TYPED_TEST_SUITE(LaneTransportTest, Fabrics);

TYPED_TEST(LaneTransportTest, MovesEveryByteOfManyHandoffs) {
  LaneServer server(this->fabric_);
  auto sender = NewSender(this->fabric_);
  MoveManyHandoffs(*sender, *server.receiver, server.endpoint(),
                   [&](uint64_t i) { return Key(i, server.incarnation); });
}

TYPED_TEST(LaneTransportTest, SurvivesFaults) {
  LaneServer server(this->fabric_);
  auto sender = MakeFaultySender(NewTransport(this->fabric_));
  MoveHandoffsThroughFaults(
      *sender, *server.receiver, server.endpoint(),
      [&](uint64_t i) { return Key(i, server.incarnation); }, TinyWordLayout());
  EXPECT_GT(server.receiver->stats().frames_by_verdict[2], 0u);
}

// Frames as large as they may be, with a bit flipped wherever one can be: each is sent again, and
// again is all it takes.
TYPED_TEST(LaneTransportTest, AFullFrameIsSentAgainWhereverItIsCorrupt) {
  LaneServer server(this->fabric_);
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
  auto server = std::make_unique<LaneServer>(this->fabric_);
  auto sender = NewSender(this->fabric_);
  LiveHandoff run({.layout = TinyWordLayout(),
                   .key = Key(1, server->incarnation),
                   .endpoint = server->endpoint()});
  run.Expect(*server->receiver);
  run.Open(*sender);
  run.handoff.Advance(*sender, 256);
  ASSERT_TRUE(Eventually([&] { return server->receiver->stats().payload_bytes > 0; }));
  server.reset();
  run.handoff.Finish(*sender);
  EXPECT_THAT(run.Sent(), Optional(StatusIs(absl::StatusCode::kUnavailable)));
}

TYPED_TEST(LaneTransportTest, FewerLanesThanPeersTakeTurns) {
  LaneServer first(this->fabric_);
  LaneServer second(this->fabric_);
  LaneServer third(this->fabric_);
  auto sender = NewSender(this->fabric_, {.groups = 4, .peer_groups = 2, .lanes = 1});
  std::list<LiveHandoff> runs;
  for (int round = 0; round < 3; ++round) {
    for (LaneServer* server : {&first, &second, &third}) {
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
  LaneServer server(this->fabric_);
  EXPECT_THAT(ProbeLane(this->fabric_, ConnectUnixLane, server.endpoint()), IsOk());
  EXPECT_TRUE(Eventually([&] { return server.service->connections() == 0; }));
  EXPECT_THAT(ProbeLane(this->fabric_, ConnectUnixLane, UnixLaneEndpoint("none", 1)),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("connecting")));
}

// --- what only one of them has

TEST(SharedLaneTest, AReceiverWhoseDeviceIsStuckFailsItsHandoffAndWorksAfterwards) {
  SharedHostFabric fabric;
  LaneServer server(fabric);
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
  LaneServer server(fabric);
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

}  // namespace
}  // namespace baton::kvtransfer
