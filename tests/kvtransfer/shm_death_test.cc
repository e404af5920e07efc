#include <chrono>

#include <unistd.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kvtransfer/process.h"
#include "tests/kvtransfer/shm_ends.h"

// Processes at either end of transport shm that are killed in the middle of a copy.

namespace baton::kvtransfer {
namespace {

using ::baton::testing::Eventually;
using ::baton::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Optional;

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

TEST(ShmDeathTest, AReceiverThatIsKilledInTheMiddleOfAFrameIsKnownAtOnce) {
  const Incarnation incarnation = NewIncarnation();
  Process receiver([&](int pipe) {
    ShmServer server;
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
  const Incarnation incarnation = NewIncarnation();
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
  EXPECT_TRUE(Eventually([&] { return receiver->stats().payload_bytes > 0; }));
  EXPECT_EQ(service->connections(), 1u);
  EXPECT_THAT(FileText("/proc/self/maps"), HasSubstr("memfd:baton-kv"));
  sender.Kill();
  EXPECT_TRUE(Eventually([&] { return service->connections() == 0; }));
  EXPECT_THAT(FileText("/proc/self/maps"), Not(HasSubstr("memfd:baton-kv")));
  receiver->Abort(Key(1, incarnation).attempt, absl::UnavailableError("the sender is gone"));
  EXPECT_THAT(run.Received(), Optional(StatusIs(absl::StatusCode::kUnavailable)));
}

}  // namespace
}  // namespace baton::kvtransfer
