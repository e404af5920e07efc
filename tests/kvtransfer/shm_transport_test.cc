#include "kvtransfer/shm/shm_transport.h"

#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <sstream>
#include <thread>

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvtransfer/host_frame.h"
#include "kvtransfer/shm/arena.h"
#include "kvtransfer/shm/shm_service.h"
#include "kvtransfer/shm/unix_socket.h"
#include "kvtransfer/shm/wire.h"
#include "tests/kvtransfer/live_handoff.h"
#include "tests/kvtransfer/transport_cases.h"

namespace baton::kvtransfer {
namespace {

using ::baton::testing::IsOk;
using ::baton::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Optional;

// An endpoint that no other run of this test has.
Incarnation NewReceiver() { return NewIncarnation(); }

std::unique_ptr<Transport> NewTransport() {
  absl::StatusOr<std::unique_ptr<Transport>> transport = MakeShmTransport();
  EXPECT_THAT(transport, IsOk());
  return *std::move(transport);
}

struct Server {
  Server() {
    auto started = ShmService::Start(receiver.get(), incarnation);
    EXPECT_THAT(started, IsOk());
    service = *std::move(started);
  }
  std::string endpoint() const { return shm::Endpoint(incarnation); }

  const Incarnation incarnation = NewReceiver();
  TransferThread callbacks;
  std::unique_ptr<Receiver> receiver = MakeReceiver(&callbacks);
  std::unique_ptr<ShmService> service;
};

template <typename Condition>
bool Soon(Condition condition) {
  for (int i = 0; i < 5000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

std::string FileText(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(ShmTransportTest, MovesEveryByteOfManyHandoffs) {
  Server server;
  auto sender = MakeSender({}, NewTransport());
  MoveManyHandoffs(*sender, *server.receiver, server.endpoint(),
                   [&](uint64_t i) { return Key(i, server.incarnation); });
}

TEST(ShmTransportTest, SurvivesFaults) {
  Server server;
  auto sender = MakeFaultySender(NewTransport());
  MoveHandoffsThroughFaults(*sender, *server.receiver, server.endpoint(),
                            [&](uint64_t i) { return Key(i, server.incarnation); });
  EXPECT_GT(server.receiver->stats().frames_by_verdict[2], 0u);
}

TEST(ShmTransportTest, NobodyAtTheEndpointIsUnavailableAtOnce) {
  auto sender = MakeSender({}, NewTransport());
  LiveHandoff run({.endpoint = shm::Endpoint(NewReceiver())});
  run.Open(*sender);
  run.handoff.Finish(*sender);
  EXPECT_THAT(run.Sent(), Optional(StatusIs(absl::StatusCode::kUnavailable)));
}

TEST(ShmTransportTest, AServiceThatEndsFailsWhatIsOutstandingAndLeavesNothingMapped) {
  auto server = std::make_unique<Server>();
  const std::string endpoint = server->endpoint();
  auto sender = MakeSender({}, NewTransport());
  LiveHandoff run({.key = Key(1, server->incarnation), .endpoint = endpoint});
  run.Expect(*server->receiver);
  run.Open(*sender);
  run.handoff.Advance(*sender, 256);
  ASSERT_TRUE(Soon([&] { return server->receiver->stats().payload_bytes > 0; }));
  server.reset();
  run.handoff.Finish(*sender);
  EXPECT_THAT(run.Sent(), Optional(StatusIs(absl::StatusCode::kUnavailable)));
  EXPECT_THAT(FileText("/proc/net/unix"), Not(HasSubstr(endpoint)));
}

TEST(ShmTransportTest, CancelBreaksAStuckConnectionAndTheNextPostOpensAnother) {
  Server server;
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
  ASSERT_TRUE(Soon(poll));
  done.clear();
  transport->Post({.post = 2, .endpoint = endpoint, .region = region.id, .frame = region.memory});
  ASSERT_TRUE(Soon(poll));
  ASSERT_EQ(done.size(), 1u);
  EXPECT_THAT(done[0].status, IsOk());
  EXPECT_EQ(done[0].verdict, FrameVerdict::kCorrupt);  // zeros
  EXPECT_THAT(done[0].detail, HasSubstr("magic"));
  transport->Release(region.id);
}

// --- negotiation

TEST(ShmProbeTest, SaysWhetherTheReceiverSeesThisMemory) {
  Server server;
  EXPECT_THAT(ProbeShm(server.endpoint()), IsOk());
  EXPECT_TRUE(Soon([&] { return server.service->connections() == 0; }));
  EXPECT_THAT(ProbeShm(shm::Endpoint(NewReceiver())),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("connecting")));
}

TEST(ShmProbeTest, AReceiverThatDoesNotAnswerOrAnswersWrongIsNotUsed) {
  const std::string endpoint = shm::Endpoint(NewReceiver());
  BATON_ASSERT_OK_AND_ASSIGN(const shm::Fd listener, shm::Listen(endpoint));
  EXPECT_THAT(ProbeShm(endpoint),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("does not answer")));
  const shm::Fd silent = shm::Accept(listener);
  std::thread liar([&] {
    shm::Fd socket;
    while (!(socket = shm::Accept(listener)).valid()) std::this_thread::yield();
    const shm::Welcome welcome{.nonce = 4711};
    EXPECT_THAT(shm::Send(socket, std::as_bytes(std::span(&welcome, 1))), IsOk());
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  });
  EXPECT_THAT(ProbeShm(endpoint),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("does not see")));
  liar.join();
}

TEST(ShmProbeTest, AReceiverOfAnotherVersionIsRefusedByName) {
  const std::string endpoint = shm::Endpoint(NewReceiver());
  BATON_ASSERT_OK_AND_ASSIGN(const shm::Fd listener, shm::Listen(endpoint));
  std::thread older([&] {
    shm::Fd socket;
    while (!(socket = shm::Accept(listener)).valid()) std::this_thread::yield();
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

// --- hostile senders

class HostileSender : public ::testing::Test {
 protected:
  // Whether the service ends the connection because of `message`.
  template <typename Message>
  bool Refused(const Message& message, int passed = -1) {
    EXPECT_THAT(shm::Send(socket_, std::as_bytes(std::span(&message, 1)), passed), IsOk());
    std::array<std::byte, 600> answer;
    bool ended = false;
    EXPECT_TRUE(Soon([&] {
      const auto received = shm::Receive(socket_, answer);
      ended = !received.ok();
      return ended || received->has_value();
    }));
    return ended;
  }
  FrameVerdict Answered(const shm::Posted& posted) {
    EXPECT_THAT(shm::Send(socket_, std::as_bytes(std::span(&posted, 1))), IsOk());
    shm::Answer answer;
    std::array<std::byte, sizeof(answer) + shm::kMaxDetailBytes> message;
    while (true) {
      const auto received = shm::Receive(socket_, message);
      if (!received.ok()) break;
      if (received->has_value()) std::memcpy(&answer, message.data(), sizeof(answer));
      if (received->has_value()) return static_cast<FrameVerdict>(answer.verdict);
      std::this_thread::yield();
    }
    ADD_FAILURE() << "the connection ended";
    return FrameVerdict::kRejected;
  }
  void Connect() {
    absl::StatusOr<shm::Fd> socket = shm::Connect(server_.endpoint());
    ASSERT_THAT(socket, IsOk());
    socket_ = *std::move(socket);
  }

  Server server_;
  shm::Fd socket_;
};

TEST_F(HostileSender, MemoryThatCouldShrinkIsRefused) {
  Connect();
  const shm::Fd memory(memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(memory.get(), 8192), 0);
  EXPECT_TRUE(Refused(shm::Hello{.arena_bytes = 8192}, memory.get()));
}

TEST_F(HostileSender, MemoryThatIsSmallerThanSaidIsRefused) {
  Connect();
  BATON_ASSERT_OK_AND_ASSIGN(const shm::Arena arena, shm::Arena::Create(1));
  EXPECT_TRUE(Refused(shm::Hello{.arena_bytes = arena.bytes() + 1}, arena.read_only().get()));
}

TEST_F(HostileSender, FramesOutsideOfTheArenaEndTheConnection) {
  BATON_ASSERT_OK_AND_ASSIGN(const shm::Arena arena, shm::Arena::Create(1));
  const shm::Posted bad[] = {
      {.bytes = 100, .offset = arena.bytes() - 99},
      {.bytes = 100, .offset = ~uint64_t{0} - 50},
      {.bytes = static_cast<uint32_t>(shm::kMaxFrameBytes) + 1, .offset = 0},
      {.kind = shm::Kind::kAnswer, .bytes = 100},
  };
  for (const shm::Posted& posted : bad) {
    Connect();
    EXPECT_FALSE(
        Refused(shm::Hello{.arena_bytes = arena.bytes()}, arena.read_only().get()));  // Welcome
    EXPECT_TRUE(Refused(posted)) << posted.bytes << " at " << posted.offset;
  }
  EXPECT_TRUE(Soon([&] { return server_.service->connections() == 0; }));
}

// The receiver reads the sender's own memory: whatever is changed there and whenever, a frame is
// accepted only if what has been written is right.
TEST_F(HostileSender, BytesThatChangeWhileTheyAreCopiedAreNotAccepted) {
  constexpr uint32_t kFrames = 16;  // a layer each
  constexpr int64_t kRecords = 60;
  const CacheLayout layout = {{{CacheStream::kCsaKv, RecordFormat::kBf16, kFrames, 1024}}};
  LiveHandoff run({.layout = layout, .key = Key(1, server_.incarnation), .tokens = 4 * kRecords});
  run.Expect(*server_.receiver);
  run.handoff.source().Finish(4 * kRecords);
  BATON_ASSERT_OK_AND_ASSIGN(shm::Arena arena, shm::Arena::Create(kFrames));
  std::vector<std::span<std::byte>> frames;
  for (uint32_t layer = 0; layer < kFrames; ++layer) {
    BATON_ASSERT_OK_AND_ASSIGN(const std::span<std::byte> slot, arena.Take());
    const FrameHeader header = {.kind = FrameKind::kTail,
                                .key = run.handoff.options().key,
                                .sequence = layer + 1,
                                .tokens = 4 * kRecords};
    const Segment segments[] = {
        {{CacheStream::kCsaKv, layer, {0, kRecords}}, RecordFormat::kBf16, 1024 * kRecords}};
    frames.push_back(slot.first(EncodeFrame(header, segments, run.handoff.source(), slot)));
  }
  Connect();
  EXPECT_FALSE(Refused(shm::Hello{.arena_bytes = arena.bytes()}, arena.read_only().get()));

  std::atomic<bool> stop = false;
  std::atomic<int> changes = 0;
  std::thread flipper([&] {  // a bit of every frame, back again a moment later
    for (size_t at = 0; !stop; at = (at * 5 + 4099) % frames[0].size()) {
      for (int time = 0; time < 2; ++time) {
        for (const std::span<std::byte> frame : frames) frame[at] ^= std::byte{0x10};
        ++changes;
        std::this_thread::sleep_for(std::chrono::microseconds(1));
      }
    }
  });
  int corrupt = 0;
  for (const std::span<std::byte> frame : frames) {
    const shm::Posted posted = {.bytes = static_cast<uint32_t>(frame.size()),
                                .offset = arena.OffsetOf(frame)};
    // A busy machine may not have let the other thread run for a while.
    const int before = changes;
    while (!stop && changes == before) std::this_thread::yield();
    FrameVerdict verdict = FrameVerdict::kCorrupt;
    while (verdict == FrameVerdict::kCorrupt) {
      if (corrupt > 2000 && !stop) {
        stop = true;
        flipper.join();
      }
      verdict = Answered(posted);
      corrupt += verdict == FrameVerdict::kCorrupt ? 1 : 0;
    }
    EXPECT_EQ(verdict, FrameVerdict::kAccepted);
  }
  stop = true;
  if (flipper.joinable()) flipper.join();
  EXPECT_GT(corrupt, 0) << "nothing changed meanwhile";
  EXPECT_THAT(run.Received(), Optional(IsOk()));
  EXPECT_EQ(run.handoff.Problem(), "");
}

TEST_F(HostileSender, AnotherVersionIsToldOursBeforeTheConnectionEnds) {
  Connect();
  const shm::Hello hello{.version = 1, .arena_bytes = 8192};
  ASSERT_THAT(shm::Send(socket_, std::as_bytes(std::span(&hello, 1))), IsOk());
  shm::Welcome welcome{.version = 0};
  bool ended = false;
  EXPECT_TRUE(Soon([&] {
    const auto received = shm::Receive(socket_, std::as_writable_bytes(std::span(&welcome, 1)));
    ended = !received.ok();
    return ended;
  }));
  EXPECT_TRUE(ended);
  EXPECT_EQ(welcome.version, shm::kVersion);
  EXPECT_EQ(welcome.nonce, 0u);
}

TEST_F(HostileSender, FramesBeforeHelloEndTheConnection) {
  Connect();
  EXPECT_TRUE(Refused(shm::Posted{.bytes = 1}));
}

// --- processes that are killed in the middle of a copy

// Tells through a pipe that a record is being read or written, and stays there.
class StuckRecords final : public SequenceRecords {
 public:
  explicit StuckRecords(int pipe) : pipe_(pipe) {}

 private:
  uint32_t DoGather(const RecordRange&, std::span<std::byte>, uint32_t) const override { Stick(); }
  uint32_t DoScatter(const RecordRange&, std::span<const std::byte>, uint32_t) override { Stick(); }
  [[noreturn]] void Stick() const {
    [[maybe_unused]] const ssize_t written = write(pipe_, "x", 1);
    while (true) pause();
  }
  const int pipe_;
};

// Runs `body` in another process. Its sends and receives are this test's to wait for.
class Process {
 public:
  explicit Process(const std::function<void(int pipe)>& body) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    pid_ = fork();
    if (pid_ == 0) {
      body(ends[1]);
      _exit(0);
    }
    close(ends[1]);
    pipe_ = shm::Fd(ends[0]);
  }
  ~Process() { Kill(); }
  void WaitForByte() {
    char byte = 0;
    EXPECT_EQ(read(pipe_.get(), &byte, 1), 1);
  }
  void Kill() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(std::exchange(pid_, 0), nullptr, 0);
  }

 private:
  pid_t pid_ = 0;
  shm::Fd pipe_;
};

TEST(ShmDeathTest, AReceiverThatIsKilledInTheMiddleOfAFrameIsKnownAtOnce) {
  const Incarnation incarnation = NewReceiver();
  Process receiver([&](int pipe) {
    Server server;
    StuckRecords records(pipe);
    auto service = ShmService::Start(server.receiver.get(), incarnation);
    LandingSpec spec = Handoff().landing();
    spec.key = Key(1, incarnation);
    spec.records = &records;
    if (!service.ok() || !server.receiver->Expect(std::move(spec)).ok()) _exit(1);
    [[maybe_unused]] const ssize_t written = write(pipe, "r", 1);
    while (true) pause();
  });
  receiver.WaitForByte();
  auto sender = MakeSender({}, NewTransport());
  LiveHandoff run({.key = Key(1, incarnation), .endpoint = shm::Endpoint(incarnation)});
  run.Open(*sender);
  run.handoff.Finish(*sender);
  receiver.WaitForByte();
  receiver.Kill();
  const auto killed = std::chrono::steady_clock::now();
  EXPECT_THAT(run.Sent(), Optional(StatusIs(absl::StatusCode::kUnavailable)));
  EXPECT_LT(std::chrono::steady_clock::now() - killed, std::chrono::seconds(1));
  EXPECT_THAT(FileText("/proc/net/unix"), Not(HasSubstr(shm::Endpoint(incarnation))));
}

TEST(ShmDeathTest, ASenderThatIsKilledInTheMiddleOfAFrameLeavesNothing) {
  const Incarnation incarnation = NewReceiver();
  Process sender([&](int pipe) {
    StuckRecords records(pipe);
    while (ProbeShm(shm::Endpoint(incarnation)).code() != absl::StatusCode::kOk) usleep(1000);
    auto live = MakeSender({.frame_bytes = 1000}, NewTransport());
    Handoff whole;
    Handoff stuck;
    OutboundSpec first = whole.outbound();
    first.key = Key(1, incarnation);
    first.endpoint = shm::Endpoint(incarnation);
    if (!live->Open(std::move(first)).ok()) _exit(1);
    whole.Advance(*live, 256);
    while (live->stats().payload_bytes == 0) usleep(1000);
    OutboundSpec second = stuck.outbound();
    second.key = Key(2, incarnation);
    second.endpoint = shm::Endpoint(incarnation);
    second.records = &records;
    if (!live->Open(std::move(second)).ok()) _exit(1);
    live->Finish(Key(2, incarnation).attempt, 300);
    while (true) pause();
  });
  TransferThread callbacks;
  const std::unique_ptr<Receiver> receiver = MakeReceiver(&callbacks);
  LiveHandoff run({.key = Key(1, incarnation)});
  run.Expect(*receiver);  // before anybody can send
  BATON_ASSERT_OK_AND_ASSIGN(const auto service, ShmService::Start(receiver.get(), incarnation));
  sender.WaitForByte();
  EXPECT_TRUE(Soon([&] { return receiver->stats().payload_bytes > 0; }));
  EXPECT_EQ(service->connections(), 1u);
  EXPECT_THAT(FileText("/proc/self/maps"), HasSubstr("memfd:baton-kv"));
  sender.Kill();
  EXPECT_TRUE(Soon([&] { return service->connections() == 0; }));
  EXPECT_THAT(FileText("/proc/self/maps"), Not(HasSubstr("memfd:baton-kv")));
  receiver->Abort(Key(1, incarnation).attempt, absl::UnavailableError("the sender is gone"));
  EXPECT_THAT(run.Received(), Optional(StatusIs(absl::StatusCode::kUnavailable)));
}

}  // namespace
}  // namespace baton::kvtransfer
