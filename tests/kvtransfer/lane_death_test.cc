#include <chrono>
#include <thread>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kvtransfer/lane_ends.h"

// Processes at either end of a lane that are killed.

namespace baton::kvtransfer {
namespace {

using ::baton::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::Optional;

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
  LaneServer server(fabric, incarnation);
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
