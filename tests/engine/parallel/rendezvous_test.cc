#include "engine/parallel/rendezvous.h"

#include <ctime>
#include <future>
#include <latch>
#include <thread>

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/parallel/free_address.h"
#include "tests/testing/status_matchers.h"

namespace baton::engine {
namespace {

using ::baton::testing::IsOk;
using ::baton::testing::StatusIs;
using ::testing::HasSubstr;

using Meeting = std::future<absl::StatusOr<std::vector<Link>>>;

class RendezvousTest : public ::testing::Test {
 protected:
  RendezvousOptions Options(int rank, int size = 2) const {
    return {.size = size,
            .rank = rank,
            .address = address_,
            .facts = {{"model", "abc"}, {"numerics", "reference"}},
            .timeout = std::chrono::seconds(10)};
  }
  static Meeting Start(const RendezvousOptions& options) {
    return std::async(std::launch::async, [options] { return Meet(options); });
  }

  const std::string address_ = FreeAddress();
};

TEST_F(RendezvousTest, EveryRankIsLinkedToTheFirst) {
  Meeting second = Start(Options(2, 3));
  Meeting first = Start(Options(1, 3));  // whoever comes first waits
  const auto zero = Meet(Options(0, 3));
  ASSERT_THAT(zero.status(), IsOk());
  ASSERT_EQ(zero->size(), 2u);
  EXPECT_EQ((*zero)[0].rank, 1);
  EXPECT_EQ((*zero)[1].rank, 2);
  EXPECT_EQ(first.get()->at(0).rank, 0);
  EXPECT_EQ(second.get()->at(0).rank, 0);
}

TEST_F(RendezvousTest, RefusesWhoeverDiffersByName) {
  Meeting zero = Start(Options(0, 3));
  Meeting one = Start(Options(1, 3));

  RendezvousOptions other = Options(2, 3);
  other.facts[1].second = "exact";
  EXPECT_THAT(Meet(other).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("numerics is exact, and reference at rank 0")));
  other = Options(2, 3);
  other.facts.pop_back();
  EXPECT_THAT(Meet(other).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("numerics is missing")));
  EXPECT_THAT(Meet(Options(2, 4)).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("expert-parallel-size is 4, and 3 at rank 0")));
  Meeting twin = Start(Options(1, 3));
  const auto ended = [](const Meeting& meeting) {
    return meeting.wait_for(std::chrono::milliseconds(1)) == std::future_status::ready;
  };
  while (!ended(one) && !ended(twin)) {
  }
  if (ended(one)) std::swap(one, twin);  // the other came first
  EXPECT_THAT(twin.get().status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("a rank 1 already")));

  EXPECT_THAT(Meet(Options(2, 3)).status(), IsOk());  // nobody took its place
  EXPECT_THAT(zero.get().status(), IsOk());
  EXPECT_THAT(one.get().status(), IsOk());
}

TEST_F(RendezvousTest, RefusesWhoeverSpeaksAnotherProtocol) {
  Meeting zero = Start(Options(0));
  absl::StatusOr<Socket> other = absl::UnavailableError("not yet");
  while (!other.ok()) other = Socket::Connect(*ParseHostPort(address_));
  const std::vector<std::byte> facts =
      EncodeFacts({{"expert-parallel-size", "2"}, {"expert-parallel-protocol", "0"}});
  EXPECT_THAT(other->Send(EncodeHeader({.type = FrameType::kHello, .from = 1}, facts.size())),
              IsOk());
  EXPECT_THAT(other->Send(facts), IsOk());
  std::byte answer[256];
  std::string text;
  const auto deadline = Socket::Clock::now() + std::chrono::seconds(5);
  while (const size_t count = other->Receive(answer, deadline).value_or(0)) {
    text += DecodeText(std::span(answer).first(count));
  }
  EXPECT_THAT(text, HasSubstr("expert-parallel-protocol is 0, and "));
  EXPECT_THAT(Meet(Options(1)).status(), IsOk());
  EXPECT_THAT(zero.get().status(), IsOk());
}

TEST_F(RendezvousTest, WhoDoesNotComeIsNamed) {
  RendezvousOptions brief = Options(0, 4);
  brief.timeout = std::chrono::milliseconds(300);
  Meeting zero = Start(brief);
  Meeting two = Start(Options(2, 4));
  EXPECT_THAT(zero.get().status(),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("did not come: 1, 3")));
  const absl::Status left = Meet([&] {
                              RendezvousOptions alone = Options(1);
                              alone.timeout = std::chrono::milliseconds(150);
                              return alone;
                            }())
                                .status();
  EXPECT_THAT(left, StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("rank 0: 127.0.0.1")));
  // Rank 2 lost rank 0 and tries again: a new one finds it.
  Meeting again = Start(Options(0, 4));
  Meeting one = Start(Options(1, 4));
  Meeting three = Start(Options(3, 4));
  EXPECT_THAT(again.get().status(), IsOk());
  EXPECT_THAT(two.get().status(), IsOk());
}

TEST_F(RendezvousTest, StrangersAndRestartedRanksDoNotStandInTheWay) {
  Meeting zero = Start(Options(0, 3));
  Meeting one = Start(Options(1, 3));
  EXPECT_THAT(one.wait_for(std::chrono::milliseconds(200)) == std::future_status::timeout, true);
  const HostPort address = *ParseHostPort(address_);
  {
    const Socket stranger = *Socket::Connect(address);
    EXPECT_THAT(stranger.Send(std::as_bytes(std::span("GET / HTTP/1.1\r\n\r\n........"))), IsOk());
  }
  {
    // A rank 2 that dies after its greeting.
    const Socket dead = *Socket::Connect(address);
    Facts facts = {{"expert-parallel-size", "3"},
                   {"expert-parallel-protocol", std::to_string(kFrameProtocol)},
                   {"expert-parallel-pass-rows", std::to_string(Wish::kMaxRows)}};
    for (const auto& fact : Options(0).facts) facts.push_back(fact);
    const std::vector<std::byte> payload = EncodeFacts(facts);
    EXPECT_THAT(dead.Send(EncodeHeader({.type = FrameType::kHello, .from = 2}, payload.size() + 1)),
                IsOk());
  }
  EXPECT_THAT(Meet(Options(2, 3)).status(), IsOk());
  EXPECT_THAT(zero.get().status(), IsOk());
  EXPECT_THAT(one.get().status(), IsOk());
}

TEST_F(RendezvousTest, WithoutFileDescriptorsItWaitsAndSaysSo) {
  RendezvousOptions brief = Options(0);
  brief.timeout = std::chrono::milliseconds(600);
  // Neither a future nor the end of a thread before descriptors are back: the sanitizers look at
  // virtual functions, which takes one.
  absl::Status status;
  std::latch met(1), restored(1);
  std::thread zero([&] {
    status = Meet(brief).status();
    met.count_down();
    restored.wait();
  });
  const HostPort address = *ParseHostPort(address_);
  while (!Socket::Connect(address).ok()) std::this_thread::yield();  // until it listens
  const Fd caller(::socket(AF_INET, SOCK_STREAM, 0));
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{.rlim_cur = 64, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  std::vector<Fd> taken;
  do {
    taken.emplace_back(open("/dev/null", O_RDONLY | O_CLOEXEC));
  } while (taken.back().valid());
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(address.port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(caller.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
  const std::clock_t began = std::clock();
  met.wait();
  EXPECT_LT(std::clock() - began, CLOCKS_PER_SEC / 10);  // of a CPU, in half a second
  taken.clear();
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  restored.count_down();
  zero.join();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kDeadlineExceeded,
                               HasSubstr("did not come: 1; accept: Too many open files")));
}

}  // namespace
}  // namespace baton::engine
