#include <chrono>
#include <thread>

#include <unistd.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kvtransfer/lane_ends.h"
#include "tests/kvtransfer/process.h"

// Processes at either end of a lane that are killed.

namespace baton::kvtransfer {
namespace {

using ::baton::testing::Eventually;
using ::baton::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::Optional;

TEST(LaneDeathTest, AReceiverThatIsKilledIsKnownAtOnce) {
  SharedHostFabric fabric;
  const Incarnation incarnation = NewIncarnation();
  Process receiver([&](int pipe) {
    fabric.stuck = true;  // in the middle of a copy
    TransferThread callbacks;
    const auto frames = MakeReceiver(&callbacks);
    const auto service = StartService(fabric, *frames, incarnation);
    [[maybe_unused]] const ssize_t written = write(pipe, "r", 1);
    while (true) pause();
  });
  receiver.WaitForByte();
  auto sender = NewSender(fabric);
  LiveHandoff run({.layout = TinyWordLayout(),
                   .key = Key(1, incarnation),
                   .endpoint = UnixLaneEndpoint(fabric.name(), incarnation)});
  run.Open(*sender);
  run.handoff.Finish(*sender);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const auto killed = std::chrono::steady_clock::now();
  receiver.Kill();
  EXPECT_THAT(run.Sent(), Optional(StatusIs(absl::StatusCode::kUnavailable, HasSubstr("closed"))));
  EXPECT_LT(std::chrono::steady_clock::now() - killed, std::chrono::milliseconds(300));
}

TEST(LaneDeathTest, ASenderThatIsKilledLeavesNothing) {
  SharedHostFabric fabric;
  const Incarnation incarnation = NewIncarnation();
  Process sender([&](int) {
    const std::string endpoint = UnixLaneEndpoint(fabric.name(), incarnation);
    while (!ProbeLane(fabric, ConnectUnixLane, endpoint).ok()) usleep(1000);
    auto live = NewSender(fabric);
    Handoff handoff({.layout = TinyWordLayout(), .key = Key(1, incarnation), .endpoint = endpoint});
    if (!live->Open(handoff.outbound()).ok()) _exit(1);
    handoff.Advance(*live, 256);
    while (true) pause();
  });
  LaneServer server(fabric, incarnation);
  LiveHandoff run({.layout = TinyWordLayout(), .key = Key(1, incarnation)});
  run.Expect(*server.receiver);
  EXPECT_TRUE(Eventually([&] { return server.receiver->stats().payload_bytes > 0; }));
  sender.Kill();
  EXPECT_TRUE(Eventually([&] { return server.service->connections() == 0; }));
  server.receiver->Abort(Key(1, incarnation).attempt, absl::UnavailableError("the sender is gone"));
  EXPECT_THAT(run.Received(), Optional(StatusIs(absl::StatusCode::kUnavailable)));
}

}  // namespace
}  // namespace baton::kvtransfer
