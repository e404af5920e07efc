#include "common/rpc/worker_host.h"

#include <atomic>
#include <latch>
#include <thread>
#include <utility>

#include "common/rpc/worker_control_client.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace baton::rpc {
namespace {

using ::baton::testing::IsOk;
using ::baton::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::chrono::seconds kTimeout{10};

WorkerHostConfig AnyPort() {
  WorkerHostConfig config;
  config.listen = "127.0.0.1:0";
  config.metrics_listen = "";
  return config;
}

WorkerHost::Role PlainRole() {
  WorkerHost::Role role;
  role.info.set_role(v1::WORKER_ROLE_DECODE);
  role.info.set_model("needle");
  role.load = [] {
    WorkerLoad load;
    load.running = 1;
    load.waiting = 2;
    load.waiting_tokens = 3;
    load.cache.pages_total = 9;
    load.cache.pages_free = 9;
    return load;
  };
  role.on_tick = [] {};
  role.handshake = [](const v1::HandshakeRequest&) -> absl::StatusOr<v1::HandshakeResponse> {
    return absl::FailedPreconditionError("manifests differ in numerics");
  };
  role.on_drain = [] {};
  return role;
}

TEST(WorkerHostTest, SaysWhoItIsAndWhatItHasToDo) {
  WorkerHost host(AnyPort(), "decode");
  ASSERT_THAT(host.Start(PlainRole()), IsOk());
  const auto info = WorkerControlClient(host.self().address()).GetInfo(kTimeout);
  ASSERT_THAT(info, IsOk());
  EXPECT_EQ(info->role(), v1::WORKER_ROLE_DECODE);
  EXPECT_EQ(info->model(), "needle");
  EXPECT_EQ(info->self().incarnation(), host.incarnation());
  EXPECT_EQ(info->self().address(), host.self().address());
  EXPECT_TRUE(info->ready());
  EXPECT_EQ(info->load().running_requests(), 1u);
  EXPECT_EQ(info->load().queued_requests(), 2u);
  EXPECT_EQ(info->load().queued_tokens(), 3u);
  EXPECT_EQ(info->load().pages_free(), 9u);
  EXPECT_THAT(host.ListeningLine(), StartsWith("listening grpc=127.0.0.1:"));
}

TEST(WorkerHostTest, SaysWhereItsMetricsAreAsOthersReachIt) {
  WorkerHostConfig config = AnyPort();
  config.metrics_listen = "0.0.0.0:0";
  WorkerHost host(config, "decode");
  ASSERT_THAT(host.Start(PlainRole()), IsOk());
  const auto info = WorkerControlClient(host.self().address()).GetInfo(kTimeout);
  ASSERT_THAT(info, IsOk());
  EXPECT_THAT(info->metrics_address(), StartsWith("127.0.0.1:"));

  WorkerHost silent(AnyPort(), "decode");
  ASSERT_THAT(silent.Start(PlainRole()), IsOk());
  const auto without = WorkerControlClient(silent.self().address()).GetInfo(kTimeout);
  ASSERT_THAT(without, IsOk());
  EXPECT_EQ(without->metrics_address(), "");
}

TEST(WorkerHostTest, HandshakeErrorsReachTheCallerAsTheyAre) {
  WorkerHost host(AnyPort(), "decode");
  ASSERT_THAT(host.Start(PlainRole()), IsOk());
  EXPECT_THAT(WorkerControlClient(host.self().address()).Handshake({}, kTimeout),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("numerics")));
  EXPECT_EQ(host.metrics().handshakes[Outcome::kMismatch].Value(), 1);
}

// A role whose handshakes take until the test lets them.
struct SlowHandshakes {
  WorkerHost::Role Role() {
    WorkerHost::Role role = PlainRole();
    role.handshake = [this](const v1::HandshakeRequest&) -> absl::StatusOr<v1::HandshakeResponse> {
      ++begun;
      proceed.wait();
      return v1::HandshakeResponse();
    };
    return role;
  }
  // Takes both threads, so that what comes then stands in line.
  void Fill(const WorkerControlClient& client, std::latch* ended) {
    for (int i = 0; i < 2; ++i) {
      client.Handshake({}, kTimeout, [ended](const auto& answer) {
        EXPECT_THAT(answer, IsOk());
        ended->count_down();
      });
    }
    while (begun < 2) std::this_thread::yield();
  }

  std::atomic<int> begun = 0;
  std::latch proceed{1};
};

TEST(WorkerHostTest, HandshakesBeyondWhatStandsInLineAreRefusedAtOnce) {
  constexpr int kInLine = 64;
  constexpr int kTooMany = 200;
  SlowHandshakes slow;
  WorkerHost host(AnyPort(), "decode");
  ASSERT_THAT(host.Start(slow.Role()), IsOk());
  const WorkerControlClient client(host.self().address());
  std::latch ended(2 + kInLine + kTooMany);
  slow.Fill(client, &ended);
  std::atomic<int> accepted = 0;
  std::atomic<int> refused = 0;
  for (int i = 0; i < kInLine + kTooMany; ++i) {
    client.Handshake({}, kTimeout, [&](const absl::StatusOr<v1::HandshakeResponse>& answer) {
      if (answer.ok()) {
        ++accepted;
      } else {
        EXPECT_THAT(answer, StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("wait for")));
        if (++refused == kTooMany) {
          EXPECT_EQ(slow.begun, 2);
          slow.proceed.count_down();
        }
      }
      ended.count_down();
    });
  }
  ended.wait();
  EXPECT_EQ(accepted, kInLine);
  EXPECT_EQ(refused, kTooMany);
  EXPECT_EQ(host.metrics().handshakes[Outcome::kOverload].Value(), kTooMany);
}

TEST(WorkerHostTest, AHandshakeThatIsGivenUpInLineIsNotTried) {
  SlowHandshakes slow;
  WorkerHost host(AnyPort(), "decode");
  ASSERT_THAT(host.Start(slow.Role()), IsOk());
  const WorkerControlClient client(host.self().address());
  std::latch ended(2);
  slow.Fill(client, &ended);
  EXPECT_THAT(client.Handshake({}, std::chrono::milliseconds(50)),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // the worker hears of it
  slow.proceed.count_down();
  ended.wait();
  host.Shutdown(kTimeout);  // waits for those in line
  EXPECT_EQ(slow.begun, 2);
}

TEST(WorkerHostTest, DrainTellsTheRoleAndIsSeenByOthers) {
  std::atomic<int> drained = 0;
  WorkerHost::Role role = PlainRole();
  role.on_drain = [&] { ++drained; };
  WorkerHost host(AnyPort(), "decode");
  ASSERT_THAT(host.Start(std::move(role)), IsOk());
  const WorkerControlClient client(host.self().address());
  EXPECT_THAT(client.Drain(kTimeout), IsOk());
  EXPECT_EQ(drained, 1);
  const auto info = client.GetInfo(kTimeout);
  ASSERT_THAT(info, IsOk());
  EXPECT_FALSE(info->ready());
}

// A router that polls all the time must not learn of a ready worker without an address.
TEST(WorkerHostTest, NobodyIsAnsweredBeforeTheAddressIsKnown) {
  WorkerHostConfig config = AnyPort();
  {
    WorkerHost finder(AnyPort(), "decode");
    ASSERT_THAT(finder.Start(PlainRole()), IsOk());
    config.listen = finder.self().address();
  }
  std::atomic<bool> done = false;
  std::atomic<int> answers = 0;
  std::jthread poller([&] {
    const WorkerControlClient client(config.listen);
    while (!done) {
      const auto info = client.GetInfo(std::chrono::milliseconds(100));
      if (!info.ok()) continue;
      EXPECT_EQ(info->self().address(), config.listen);
      EXPECT_TRUE(info->ready());
      ++answers;
    }
  });
  for (int i = 0; i < 5; ++i) {
    WorkerHost host(config, "decode");
    EXPECT_THAT(host.Start(PlainRole()), IsOk());
    const auto deadline = std::chrono::steady_clock::now() + kTimeout;
    const int before = answers;
    while (answers == before && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::yield();
    }
    EXPECT_GT(answers, before);
  }
  done = true;
}

TEST(WorkerHostTest, AnAddressThatOthersCannotReachIsNotAdvertised) {
  WorkerHostConfig config = AnyPort();
  config.listen = "0.0.0.0:0";
  WorkerHost silent(config, "decode");
  EXPECT_THAT(silent.Start(PlainRole()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("set advertise")));
  config.advertise = "worker.example:7002";
  WorkerHost host(config, "decode");
  ASSERT_THAT(host.Start(PlainRole()), IsOk());
  EXPECT_EQ(host.self().address(), "worker.example:7002");
}

TEST(WorkerHostTest, BadAndTakenAddressesAreNamed) {
  WorkerHostConfig config = AnyPort();
  config.listen = "localhost";
  EXPECT_THAT(WorkerHost(config, "decode").Start(PlainRole()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("listen is \"localhost\"")));
  WorkerHost first(AnyPort(), "decode");
  ASSERT_THAT(first.Start(PlainRole()), IsOk());
  config.listen = first.self().address();
  EXPECT_THAT(WorkerHost(config, "decode").Start(PlainRole()),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr(config.listen)));
}

}  // namespace
}  // namespace baton::rpc
