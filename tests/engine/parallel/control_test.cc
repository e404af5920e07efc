#include "engine/parallel/control.h"

#include <atomic>
#include <future>
#include <thread>

#include <sys/socket.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace baton::engine {
namespace {

using ::baton::testing::IsOk;
using ::testing::HasSubstr;

using std::chrono::milliseconds;
using std::chrono::seconds;

// Rank 0 of three; the test speaks for the others.
class ControlTest : public ::testing::Test {
 protected:
  ControlTest() {
    std::vector<Link> links;
    for (const int rank : {1, 2}) {
      int ends[2];
      EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
      links.push_back({.rank = rank, .socket = Socket(Fd(ends[0]))});
      links.back().reader.Trust();
      peers_[rank] = Socket(Fd(ends[1]));
    }
    control_.emplace(0, std::move(links), *Wakeup::Create(), milliseconds(400),
                     Control::Handler{.on_frame = [](int, Frame) { return absl::OkStatus(); },
                                      .on_tick = [] { return absl::OkStatus(); },
                                      .on_fault =
                                          [this](const absl::Status& why) {
                                            failed_.set_value(std::string(why.message()));
                                          }});
    control_->Start();
  }
  void Send(int from, const Frame& frame) {
    EXPECT_THAT(peers_[from].Send(EncodeHeader(frame, frame.payload.size())), IsOk());
    EXPECT_THAT(peers_[from].Send(frame.payload), IsOk());
  }

  Socket peers_[3];
  std::promise<std::string> failed_;
  std::future<std::string> fault_ = failed_.get_future();
  std::optional<Control> control_;
};

TEST_F(ControlTest, NobodyIsSilentWhileAnothersRowsAreForwarded) {
  std::atomic<bool> done = false;
  // Rank 2 shows that it is alive, but is slow to take the rows that rank 1 has for it.
  std::thread two([&] {
    while (!done) {
      Send(2, {.type = FrameType::kPulse, .from = 2});
      std::this_thread::sleep_for(milliseconds(50));
    }
  });
  Send(1,
       {.type = FrameType::kRows, .from = 1, .to = 2, .payload = std::vector<std::byte>(4 << 20)});
  std::this_thread::sleep_for(milliseconds(900));
  std::vector<std::byte> bytes(1 << 16);
  const auto deadline = Socket::Clock::now() + milliseconds(300);
  size_t taken = 0;
  while (Socket::Clock::now() < deadline) {
    taken += peers_[2].Receive(bytes, deadline).value_or(0);
    Send(1, {.type = FrameType::kPulse, .from = 1});
    if (taken > size_t{4} << 20) std::this_thread::sleep_for(milliseconds(20));
  }
  EXPECT_GT(taken, size_t{4} << 20);
  EXPECT_EQ(fault_.wait_for(seconds(0)), std::future_status::timeout);
  done = true;
  two.join();
  EXPECT_THAT(fault_.get(), HasSubstr("says nothing any more"));  // once nobody pulses
}

}  // namespace
}  // namespace baton::engine
