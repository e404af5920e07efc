#include "kvtransfer/shm/shm_transport.h"

#include <chrono>
#include <thread>

#include "common/acceptor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvtransfer/shm/unix_socket.h"
#include "tests/kvtransfer/shm_ends.h"

namespace baton::kvtransfer {
namespace {

using ::baton::testing::Eventually;
using ::baton::testing::IsOk;
using ::baton::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Optional;

TEST(ShmTransportTest, MovesEveryByteOfManyHandoffs) {
  ShmServer server;
  auto sender = MakeSender({}, NewTransport());
  MoveManyHandoffs(*sender, *server.receiver, server.endpoint(),
                   [&](uint64_t i) { return Key(i, server.incarnation); });
}

TEST(ShmTransportTest, SurvivesFaults) {
  ShmServer server;
  auto sender = MakeFaultySender(NewTransport());
  MoveHandoffsThroughFaults(*sender, *server.receiver, server.endpoint(),
                            [&](uint64_t i) { return Key(i, server.incarnation); });
  EXPECT_GT(server.receiver->stats().frames_by_verdict[2], 0u);
}

TEST(ShmTransportTest, NobodyAtTheEndpointIsUnavailableAtOnce) {
  auto sender = MakeSender({}, NewTransport());
  LiveHandoff run({.endpoint = shm::Endpoint(NewIncarnation())});
  run.Open(*sender);
  run.handoff.Finish(*sender);
  EXPECT_THAT(run.Sent(), Optional(StatusIs(absl::StatusCode::kUnavailable)));
}

TEST(ShmTransportTest, AServiceThatEndsFailsWhatIsOutstandingAndLeavesNothingMapped) {
  auto server = std::make_unique<ShmServer>();
  const std::string endpoint = server->endpoint();
  auto sender = MakeSender({}, NewTransport());
  LiveHandoff run({.key = Key(1, server->incarnation), .endpoint = endpoint});
  run.Expect(*server->receiver);
  run.Open(*sender);
  run.handoff.Advance(*sender, 256);
  ASSERT_TRUE(Eventually([&] { return server->receiver->stats().payload_bytes > 0; }));
  server.reset();
  run.handoff.Finish(*sender);
  EXPECT_THAT(run.Sent(), Optional(StatusIs(absl::StatusCode::kUnavailable)));
  EXPECT_THAT(FileText("/proc/net/unix"), Not(HasSubstr(endpoint)));
}

TEST(ShmTransportTest, CancelBreaksAStuckConnectionAndTheNextPostOpensAnother) {
  ShmServer server;
  auto transport = NewTransport();
  transport->SetWakeup([] {});
  BATON_ASSERT_OK_AND_ASSIGN(const Region region, transport->Register(1000));
  std::vector<Completion> done;
  const auto poll = [&] {
    for (Completion& completion : transport->Poll()) done.push_back(std::move(completion));
    return !done.empty();
  };
  const std::string endpoint = server.endpoint();
  transport->Post({.post = 1, .endpoint = endpoint, .region = region.id, .frame = region.memory});
  transport->Cancel(1);
  ASSERT_TRUE(Eventually(poll));
  done.clear();
  transport->Post({.post = 2, .endpoint = endpoint, .region = region.id, .frame = region.memory});
  ASSERT_TRUE(Eventually(poll));
  ASSERT_EQ(done.size(), 1u);
  EXPECT_THAT(done[0].status, IsOk());
  EXPECT_EQ(done[0].verdict, FrameVerdict::kCorrupt);  // zeros
  EXPECT_THAT(done[0].detail, HasSubstr("magic"));
  transport->Release(region.id);
}

// A sender waits for memory that others' frames are in, instead of failing a hand-off.
TEST(ShmTransportTest, HasMemoryForAsManyFramesAsItSays) {
  auto transport = NewTransport();
  std::vector<RegionId> regions;
  for (size_t i = 0; i < transport->capabilities().max_regions; ++i) {
    BATON_ASSERT_OK_AND_ASSIGN(const Region region, transport->Register(1000));
    regions.push_back(region.id);
  }
  EXPECT_THAT(transport->Register(1000), StatusIs(absl::StatusCode::kResourceExhausted));
  for (const RegionId region : regions) transport->Release(region);
}

// --- negotiation

TEST(ShmProbeTest, SaysWhetherTheReceiverSeesThisMemory) {
  ShmServer server;
  EXPECT_THAT(ProbeShm(server.endpoint()), IsOk());
  EXPECT_TRUE(Eventually([&] { return server.service->connections() == 0; }));
  EXPECT_THAT(ProbeShm(shm::Endpoint(NewIncarnation())),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("connecting")));
}

TEST(ShmProbeTest, AReceiverThatDoesNotAnswerOrAnswersWrongIsNotUsed) {
  const std::string endpoint = shm::Endpoint(NewIncarnation());
  BATON_ASSERT_OK_AND_ASSIGN(Fd listener, shm::Listen(endpoint));
  Acceptor acceptor("test", std::move(listener));
  EXPECT_THAT(ProbeShm(endpoint),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("does not answer")));
  const Fd silent = acceptor.Accept();
  std::thread liar([&] {
    Fd socket;
    while (!(socket = acceptor.Accept()).valid()) std::this_thread::yield();
    const shm::Welcome welcome{.nonce = 4711};
    EXPECT_THAT(shm::Send(socket, std::as_bytes(std::span(&welcome, 1))), IsOk());
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  });
  EXPECT_THAT(ProbeShm(endpoint),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("does not see")));
  liar.join();
}

TEST(ShmProbeTest, AReceiverOfAnotherVersionIsRefusedByName) {
  const std::string endpoint = shm::Endpoint(NewIncarnation());
  BATON_ASSERT_OK_AND_ASSIGN(Fd listener, shm::Listen(endpoint));
  Acceptor acceptor("test", std::move(listener));
  std::thread older([&] {
    Fd socket;
    while (!(socket = acceptor.Accept()).valid()) std::this_thread::yield();
    shm::Hello hello;  // read: else the end of the connection is a reset, which goes first
    while (true) {
      const auto received = shm::Receive(socket, std::as_writable_bytes(std::span(&hello, 1)));
      if (!received.ok() || received->has_value()) break;
    }
    EXPECT_EQ(hello.version, shm::kVersion);
    const shm::Welcome welcome{.version = 1};
    EXPECT_THAT(shm::Send(socket, std::as_bytes(std::span(&welcome, 1))), IsOk());
  });
  EXPECT_THAT(ProbeShm(endpoint),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("version 1 of shm, expected 2")));
  older.join();
}

}  // namespace
}  // namespace baton::kvtransfer
