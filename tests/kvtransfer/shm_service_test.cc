#include "kvtransfer/shm/shm_service.h"

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include <sys/mman.h>
#include <unistd.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvtransfer/host_frame.h"
#include "kvtransfer/shm/arena.h"
#include "kvtransfer/shm/unix_socket.h"
#include "tests/kvtransfer/shm_ends.h"

namespace baton::kvtransfer {
namespace {

using ::baton::testing::Eventually;
using ::baton::testing::IsOk;
using ::testing::Optional;

// A prefill worker that says and does what it likes.
class HostileSender : public ::testing::Test {
 protected:
  // Whether the service ends the connection because of `message`.
  template <typename Message>
  bool Refused(const Message& message, int passed = -1) {
    EXPECT_THAT(shm::Send(socket_, std::as_bytes(std::span(&message, 1)), passed), IsOk());
    std::array<std::byte, 600> answer;
    bool ended = false;
    EXPECT_TRUE(Eventually([&] {
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
    absl::StatusOr<Fd> socket = shm::Connect(server_.endpoint());
    ASSERT_THAT(socket, IsOk());
    socket_ = *std::move(socket);
  }

  ShmServer server_;
  Fd socket_;
};

TEST_F(HostileSender, MemoryThatCouldShrinkIsRefused) {
  Connect();
  const Fd memory(memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING));
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
  EXPECT_TRUE(Eventually([&] { return server_.service->connections() == 0; }));
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
  EXPECT_TRUE(Eventually([&] {
    const auto received = shm::Receive(socket_, std::as_writable_bytes(std::span(&welcome, 1)));
    ended = !received.ok();
    return ended;
  }));
  EXPECT_TRUE(ended);
  EXPECT_EQ(welcome.version, shm::kVersion);
  EXPECT_EQ(welcome.nonce, 0u);
}

TEST_F(HostileSender, ConnectionsWithoutHelloAreClosedAndTheOthersAreNot) {
  const auto silent = *shm::Connect(server_.endpoint());
  Connect();
  BATON_ASSERT_OK_AND_ASSIGN(const shm::Arena arena, shm::Arena::Create(1));
  EXPECT_FALSE(Refused(shm::Hello{.arena_bytes = arena.bytes()}, arena.read_only().get()));
  std::array<std::byte, 8> nothing;
  EXPECT_TRUE(Eventually([&] { return !shm::Receive(silent, nothing).ok(); }));
  EXPECT_TRUE(Eventually([&] { return server_.service->connections() == 1; }));
  EXPECT_EQ(Answered({.bytes = 100}), FrameVerdict::kCorrupt);
}

TEST_F(HostileSender, ConnectionsBeyondTheLimitAreClosedAtOnce) {
  BATON_ASSERT_OK_AND_ASSIGN(const shm::Arena arena, shm::Arena::Create(0));
  const shm::Hello hello{.arena_bytes = arena.bytes()};
  std::vector<Fd> connections;
  for (size_t i = 1; i <= 256; ++i) {
    connections.push_back(*shm::Connect(server_.endpoint()));
    ASSERT_THAT(
        shm::Send(connections.back(), std::as_bytes(std::span(&hello, 1)), arena.read_only().get()),
        IsOk());
    ASSERT_TRUE(Eventually([&] { return server_.service->connections() == i; }));
  }
  const auto refused = *shm::Connect(server_.endpoint());
  std::array<std::byte, 8> nothing;
  EXPECT_TRUE(Eventually([&] { return !shm::Receive(refused, nothing).ok(); }));
  EXPECT_EQ(server_.service->connections(), 256u);
  connections.clear();
  EXPECT_TRUE(Eventually([&] { return ProbeShm(server_.endpoint()).ok(); }));
}

TEST_F(HostileSender, FramesBeforeHelloEndTheConnection) {
  Connect();
  EXPECT_TRUE(Refused(shm::Posted{.bytes = 1}));
}

}  // namespace
}  // namespace baton::kvtransfer
