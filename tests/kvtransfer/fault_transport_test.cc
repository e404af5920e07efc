#include "kvtransfer/fault/fault_transport.h"

#include <map>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvtransfer/loopback/loopback.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/inline_executor.h"
#include "tests/testing/manual_executor.h"
#include "tests/testing/status_matchers.h"

namespace baton::kvtransfer {
namespace {

using ::baton::testing::FakeClock;
using ::baton::testing::InlineExecutor;
using ::baton::testing::IsOk;
using ::baton::testing::ManualExecutor;
using ::baton::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Kind = Fault::Kind;

// Accepts everything and remembers the first byte of each frame.
class RecordingReceiver final : public Receiver {
 public:
  absl::Status Expect(LandingSpec) override { return absl::OkStatus(); }
  void Abort(const AttemptId&, absl::Status) override {}
  FrameVerdict OnFrame(std::span<const std::byte> frame, std::string*) override {
    frames_.emplace_back(frame.begin(), frame.end());
    return FrameVerdict::kAccepted;
  }
  FrameVerdict OnDeviceFrame(std::span<const std::byte>, RecordMover&, std::string*) override {
    ADD_FAILURE() << "loopback has no device";
    return FrameVerdict::kRejected;
  }
  int64_t received_bytes(const AttemptId&) const override { return 0; }
  ReceiverStats stats() const override { return {}; }

  std::vector<int> first_bytes() const {
    std::vector<int> bytes;
    for (const auto& frame : frames_) bytes.push_back(static_cast<int>(frame[0]));
    return bytes;
  }
  const std::vector<std::vector<std::byte>>& frames() const { return frames_; }

 private:
  std::vector<std::vector<std::byte>> frames_;
};

// Has memory for frames, but not for copies of them.
class OneRegion final : public Transport {
 public:
  explicit OneRegion(std::unique_ptr<Transport> inner) : inner_(std::move(inner)) {}

  const TransportCapabilities& capabilities() const override { return inner_->capabilities(); }
  void SetWakeup(std::function<void()> wakeup) override { inner_->SetWakeup(std::move(wakeup)); }
  absl::StatusOr<Region> Register(size_t bytes) override {
    if (std::exchange(taken_, true)) return absl::ResourceExhaustedError("one region is all");
    return inner_->Register(bytes);
  }
  void Release(RegionId region) override { inner_->Release(region); }
  void Post(const PostRequest& request) override { inner_->Post(request); }
  std::vector<Completion> Poll() override { return inner_->Poll(); }
  void Cancel(uint64_t post) override { inner_->Cancel(post); }

 private:
  const std::unique_ptr<Transport> inner_;
  bool taken_ = false;
};

class FaultTransportTest : public ::testing::Test {
 protected:
  FaultTransportTest() {
    EXPECT_THAT(network_.Attach("a", &receiver_), IsOk());
    EXPECT_THAT(network_.Attach("b", &other_), IsOk());
    transport_->SetWakeup([this] { ++wakeups_; });
    auto region = transport_->Register(256);
    EXPECT_THAT(region, IsOk());
    region_ = region->id;
    memory_ = region->memory;
  }
  ~FaultTransportTest() override { transport_->Release(region_); }

  // The frame of post n is the four bytes from n on, the first of which is n.
  void Post(uint64_t post, Fault fault, std::string_view endpoint = "a") {
    next_ = fault;
    for (size_t i = 0; i < 4; ++i) memory_[4 * post + i] = static_cast<std::byte>(post);
    transport_->Post({.post = post,
                      .endpoint = endpoint,
                      .region = region_,
                      .frame = memory_.subspan(4 * post, 4)});
  }
  std::vector<uint64_t> PollPosts() {
    std::vector<uint64_t> posts;
    for (const Completion& completion : transport_->Poll()) posts.push_back(completion.post);
    return posts;
  }

  std::span<std::byte> memory_;
  FakeClock clock_;
  InlineExecutor inline_;
  LoopbackNetwork network_{&inline_};
  RecordingReceiver receiver_;
  RecordingReceiver other_;
  Fault next_;
  int wakeups_ = 0;
  std::unique_ptr<Transport> transport_ = WithFaults(
      network_.Connect(), [this](const PostRequest&) { return next_; }, clock_);
  RegionId region_ = 0;
};

TEST_F(FaultTransportTest, PassesFramesThroughByDefault) {
  Post(1, {});
  EXPECT_THAT(PollPosts(), ElementsAre(1));
  EXPECT_THAT(receiver_.first_bytes(), ElementsAre(1));
  EXPECT_GT(wakeups_, 0);
  EXPECT_EQ(transport_->capabilities().name, "loopback");
}

TEST_F(FaultTransportTest, WithoutMemoryForACorruptCopyAFrameFailsHeldOrNot) {
  const auto transport = WithFaults(
      std::make_unique<OneRegion>(network_.Connect()), [this](const PostRequest&) { return next_; },
      clock_);
  const absl::StatusOr<Region> region = transport->Register(16);
  ASSERT_THAT(region, IsOk());
  const auto post = [&](uint64_t number, Kind kind, std::chrono::nanoseconds duration = {}) {
    next_ = {.kind = kind, .duration = duration};
    transport->Post(
        {.post = number, .endpoint = "a", .region = region->id, .frame = region->memory});
  };
  post(1, Kind::kCorrupt);
  post(2, Kind::kStall, std::chrono::milliseconds(5));
  post(3, Kind::kCorrupt);
  post(4, Kind::kCorrupt);
  clock_.Advance(std::chrono::milliseconds(5));
  std::map<uint64_t, absl::StatusCode> ends;
  for (const Completion& end : transport->Poll()) ends[end.post] = end.status.code();
  constexpr auto kFailed = absl::StatusCode::kResourceExhausted;
  EXPECT_THAT(ends, ElementsAre(std::pair(1, kFailed), std::pair(2, absl::StatusCode::kOk),
                                std::pair(3, kFailed), std::pair(4, kFailed)));
  transport->Release(region->id);
}

TEST_F(FaultTransportTest, DropsUntilCancelled) {
  Post(1, {.kind = Kind::kDrop});
  EXPECT_THAT(PollPosts(), IsEmpty());
  EXPECT_THAT(receiver_.frames(), IsEmpty());
  transport_->Cancel(1);
  const auto completions = transport_->Poll();
  ASSERT_THAT(completions, SizeIs(1));
  EXPECT_THAT(completions[0].status, StatusIs(absl::StatusCode::kCancelled));
}

TEST_F(FaultTransportTest, DropsAnswersUntilCancelled) {
  Post(1, {.kind = Kind::kDropAnswer});
  EXPECT_THAT(PollPosts(), IsEmpty());
  EXPECT_THAT(receiver_.first_bytes(), ElementsAre(1));
  transport_->Cancel(1);
  EXPECT_THAT(PollPosts(), ElementsAre(1));
}

TEST_F(FaultTransportTest, DelaysByTheClock) {
  Post(1, {.kind = Kind::kDelay, .duration = std::chrono::milliseconds(10)});
  Post(2, {});
  EXPECT_THAT(PollPosts(), ElementsAre(2));
  clock_.Advance(std::chrono::milliseconds(9));
  EXPECT_THAT(PollPosts(), IsEmpty());
  clock_.Advance(std::chrono::milliseconds(1));
  EXPECT_THAT(PollPosts(), ElementsAre(1));
}

TEST_F(FaultTransportTest, ReordersBehindTheNextFrameOfTheSameEndpoint) {
  Post(1, {.kind = Kind::kReorder, .duration = std::chrono::hours(1)});
  Post(2, {}, "b");
  EXPECT_THAT(receiver_.first_bytes(), IsEmpty());
  Post(3, {});
  EXPECT_THAT(receiver_.first_bytes(), ElementsAre(3, 1));
  EXPECT_THAT(PollPosts(), ElementsAre(2, 3, 1));
  Post(4, {.kind = Kind::kReorder, .duration = std::chrono::milliseconds(1)});
  clock_.Advance(std::chrono::milliseconds(1));
  EXPECT_THAT(PollPosts(), ElementsAre(4)) << "nothing followed, so time releases it";
}

TEST_F(FaultTransportTest, DuplicatesAndCompletesOnce) {
  Post(1, {.kind = Kind::kDuplicate});
  EXPECT_THAT(receiver_.first_bytes(), ElementsAre(1, 1));
  EXPECT_THAT(PollPosts(), ElementsAre(1));
}

TEST_F(FaultTransportTest, FlipsOneBitOfACopy) {
  Post(1, {.kind = Kind::kCorrupt, .bit = 32 + 11});  // modulo 32 bits
  EXPECT_THAT(PollPosts(), ElementsAre(1));
  ASSERT_THAT(receiver_.frames(), SizeIs(1));
  EXPECT_THAT(receiver_.frames()[0],
              ElementsAre(std::byte{1}, std::byte{1 ^ 8}, std::byte{1}, std::byte{1}));
  EXPECT_EQ(memory_[5], std::byte{1});
}

TEST_F(FaultTransportTest, StallsOneEndpoint) {
  Post(1, {.kind = Kind::kStall, .duration = std::chrono::milliseconds(10)});
  Post(2, {});
  Post(3, {}, "b");
  EXPECT_THAT(PollPosts(), ElementsAre(3));
  clock_.Advance(std::chrono::milliseconds(10));
  EXPECT_THAT(PollPosts(), ElementsAre(1, 2));
}

TEST_F(FaultTransportTest, CutsEverythingThatIsOutstandingAtOneEndpoint) {
  Post(1, {.kind = Kind::kDrop});
  Post(2, {.kind = Kind::kDelay, .duration = std::chrono::hours(1)});
  Post(3, {.kind = Kind::kDrop}, "b");
  Post(4, {.kind = Kind::kCut});
  const auto completions = transport_->Poll();
  ASSERT_THAT(completions, SizeIs(3));
  for (const Completion& completion : completions) {
    EXPECT_NE(completion.post, 3u);
    EXPECT_THAT(completion.status, StatusIs(absl::StatusCode::kUnavailable));
  }
  Post(5, {});
  EXPECT_THAT(PollPosts(), ElementsAre(5)) << "the next frame finds a new connection";
  transport_->Cancel(3);
  EXPECT_THAT(PollPosts(), ElementsAre(3));
}

TEST_F(FaultTransportTest, CancelOfACompletePostHasNoEffect) {
  Post(1, {});
  EXPECT_THAT(PollPosts(), ElementsAre(1));
  transport_->Cancel(1);
  EXPECT_THAT(PollPosts(), IsEmpty());
}

TEST(RandomFaultsTest, TheSameSeedGivesTheSameFaults) {
  const FaultRates rates = {.drop = 0.1,
                            .drop_answer = 0.1,
                            .delay = 0.1,
                            .reorder = 0.1,
                            .duplicate = 0.1,
                            .corrupt = 0.1,
                            .stall = 0.1,
                            .cut = 0.1};
  FaultPlan first = RandomFaults(rates, 7);
  FaultPlan second = RandomFaults(rates, 7);
  FaultPlan third = RandomFaults(rates, 8);
  std::vector<std::byte> frame(100);
  const PostRequest request = {.post = 1, .endpoint = "a", .region = 1, .frame = frame};
  int counts[9] = {};
  int differing = 0;
  for (int i = 0; i < 9000; ++i) {
    const Fault a = first(request);
    const Fault b = second(request);
    const Fault c = third(request);
    EXPECT_EQ(a.kind, b.kind);
    EXPECT_EQ(a.duration, b.duration);
    EXPECT_EQ(a.bit, b.bit);
    differing += a.bit != c.bit ? 1 : 0;
    ++counts[static_cast<int>(a.kind)];
    EXPECT_LE(a.duration, rates.max_duration);
  }
  EXPECT_GT(differing, 8000);
  EXPECT_NEAR(counts[0], 1800, 200);
  for (int kind = 1; kind < 9; ++kind) EXPECT_NEAR(counts[kind], 900, 150) << kind;
}

// Loopback with a queue, without faults.
TEST(LoopbackTest, CancelledDeliveriesNeverTouchTheFrame) {
  ManualExecutor deliveries;
  LoopbackNetwork network(&deliveries);
  RecordingReceiver receiver;
  ASSERT_THAT(network.Attach("a", &receiver), IsOk());
  auto transport = network.Connect();
  BATON_ASSERT_OK_AND_ASSIGN(const Region region, transport->Register(8));
  transport->Post({.post = 1, .endpoint = "a", .region = region.id, .frame = region.memory});
  EXPECT_THAT(transport->Poll(), IsEmpty());
  transport->Cancel(1);
  EXPECT_THAT(transport->Poll(), SizeIs(1));
  transport->Release(region.id);  // frees the memory
  transport.reset();
  deliveries.RunAll();
  EXPECT_THAT(receiver.frames(), IsEmpty());
}

TEST(LoopbackTest, AnEndpointIsTakenUntilItIsDetached) {
  InlineExecutor deliveries;
  LoopbackNetwork network(&deliveries);
  RecordingReceiver receiver;
  ASSERT_THAT(network.Attach("a", &receiver), IsOk());
  EXPECT_THAT(network.Attach("a", &receiver), StatusIs(absl::StatusCode::kAlreadyExists));
  network.Detach("a");
  network.Detach("a");
  EXPECT_THAT(network.Attach("a", &receiver), IsOk());
}

TEST(TransferThreadTest, RunsTasksInOrderAndAllOfThemBeforeItEnds) {
  std::vector<int> order;
  {
    TransferThread thread;
    for (int i = 0; i < 100; ++i) thread.Run([&order, i] { order.push_back(i); });
  }
  ASSERT_THAT(order, SizeIs(100));
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
}

}  // namespace
}  // namespace baton::kvtransfer
