#include "worker/control_service.h"

#include <atomic>
#include <latch>
#include <memory>
#include <string>
#include <thread>

#include "common/rpc/server.h"
#include "common/rpc/worker_control_client.h"
#include "gtest/gtest.h"
#include "kvtransfer/grpc/handshake.h"
#include "tests/testing/fake_records.h"
#include "tests/testing/status_matchers.h"
#include "tests/worker/plain_role.h"

namespace baton::worker {
namespace {

using ::baton::testing::IsOk;
using ::baton::testing::StatusIs;
using ::testing::HasSubstr;

constexpr std::chrono::seconds kTimeout{10};

class ControlServiceTest : public ::testing::Test {
 protected:
  ControlServiceTest() {
    info_.set_model("needle");
    info_.mutable_self()->set_address("worker.example:7002");
    manifest_.semantics = {{"numerics", "exact"}};
    manifest_.layout = testing::TinyLayout();
    manifest_.transports = {"shm"};
    auto server = rpc::GrpcServer::Start(
        {.listen = "127.0.0.1:0", .services = {&service_}, .service_names = {}});
    EXPECT_THAT(server, IsOk());
    server_ = *std::move(server);
    client_.emplace("127.0.0.1:" + std::to_string(server_->port()));
  }

  v1::HandshakeRequest Request() const {
    v1::HandshakeRequest request;
    *request.mutable_manifest() = kvtransfer::ManifestToProto(manifest_);
    return request;
  }
  void Begin() { service_.Begin(info_, manifest_); }

  v1::GetInfoResponse info_;
  kvtransfer::Manifest manifest_;
  Metrics registry_{"decode"};
  WorkerMetrics metrics_{registry_};
  PlainRole role_;
  ControlService service_{role_, metrics_, [this] {
                            service_.SetNotReady();
                            role_.Drain(Clock::Duration(0));
                          }};
  std::unique_ptr<rpc::GrpcServer> server_;
  std::optional<rpc::WorkerControlClient> client_;
};

TEST_F(ControlServiceTest, SaysWhoTheWorkerIsAndWhatItHasToDo) {
  Begin();
  const auto info = client_->GetInfo(kTimeout);
  ASSERT_THAT(info, IsOk());
  EXPECT_EQ(info->model(), "needle");
  EXPECT_EQ(info->self().address(), "worker.example:7002");
  EXPECT_TRUE(info->ready());
  EXPECT_EQ(info->load().running_requests(), 1u);
  EXPECT_EQ(info->load().queued_requests(), 2u);
  EXPECT_EQ(info->load().queued_tokens(), 3u);
  EXPECT_EQ(info->load().pages_free(), 9u);
}

TEST_F(ControlServiceTest, NobodyIsToldAnythingBeforeTheModelIsLoaded) {
  const auto loading = StatusIs(absl::StatusCode::kUnavailable, HasSubstr("loading"));
  EXPECT_THAT(client_->GetInfo(kTimeout), loading);
  EXPECT_THAT(client_->Handshake(Request(), kTimeout), loading);
  EXPECT_THAT(client_->Drain(kTimeout), loading);
  EXPECT_EQ(role_.drains, 0);
  Begin();
  EXPECT_THAT(client_->GetInfo(kTimeout), IsOk());
}

TEST_F(ControlServiceTest, DrainTellsTheRoleAndIsSeenByOthers) {
  Begin();
  EXPECT_THAT(client_->Drain(kTimeout), IsOk());
  EXPECT_EQ(role_.drains, 1);
  const auto info = client_->GetInfo(kTimeout);
  ASSERT_THAT(info, IsOk());
  EXPECT_FALSE(info->ready());
}

TEST_F(ControlServiceTest, AHandshakeIsAnsweredWithWhoAnswers) {
  Begin();
  const auto answer = client_->Handshake(Request(), kTimeout);
  ASSERT_THAT(answer, IsOk());
  EXPECT_EQ(answer->self().address(), "worker.example:7002");
  EXPECT_EQ(answer->transport(), "shm");
  EXPECT_EQ(metrics_.transports_chosen[TransportLabel::kShm].Value(), 1);
}

TEST_F(ControlServiceTest, HandshakeErrorsReachTheCallerAsTheyAre) {
  Begin();
  v1::HandshakeRequest request = Request();
  request.mutable_manifest()->mutable_semantics(0)->set_value("reference");
  EXPECT_THAT(client_->Handshake(request, kTimeout),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("numerics")));
  EXPECT_EQ(metrics_.handshakes[Outcome::kMismatch].Value(), 1);
}

// Transports whose trial takes until the test lets it end.
class SlowHandshakeTest : public ControlServiceTest {
 protected:
  SlowHandshakeTest() {
    role_.try_transport = [this] {
      ++begun_;
      proceed_.wait();
      return absl::OkStatus();
    };
    Begin();
  }
  // Takes both threads, so that what comes then stands in line.
  void Fill(std::latch* ended) {
    for (int i = 0; i < 2; ++i) {
      client_->Handshake(Request(), kTimeout, [ended](const auto& answer) {
        EXPECT_THAT(answer, IsOk());
        ended->count_down();
      });
    }
    while (begun_ < 2) std::this_thread::yield();
  }

  std::atomic<int> begun_ = 0;
  std::latch proceed_{1};
};

TEST_F(SlowHandshakeTest, HandshakesBeyondWhatStandsInLineAreRefusedAtOnce) {
  constexpr int kInLine = 64;
  constexpr int kTooMany = 200;
  std::latch ended(2 + kInLine + kTooMany);
  Fill(&ended);
  std::atomic<int> accepted = 0;
  std::atomic<int> refused = 0;
  for (int i = 0; i < kInLine + kTooMany; ++i) {
    client_->Handshake(
        Request(), kTimeout, [&](const absl::StatusOr<v1::HandshakeResponse>& answer) {
          if (answer.ok()) {
            ++accepted;
          } else {
            EXPECT_THAT(answer,
                        StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("wait for")));
            if (++refused == kTooMany) {
              EXPECT_EQ(begun_, 2);
              proceed_.count_down();
            }
          }
          ended.count_down();
        });
  }
  ended.wait();
  EXPECT_EQ(accepted, kInLine);
  EXPECT_EQ(refused, kTooMany);
  EXPECT_EQ(metrics_.handshakes[Outcome::kOverload].Value(), kTooMany);
}

TEST_F(SlowHandshakeTest, AHandshakeThatIsGivenUpInLineIsNotTried) {
  std::latch ended(2);
  Fill(&ended);
  EXPECT_THAT(client_->Handshake(Request(), std::chrono::milliseconds(50)),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_THAT(client_->GetInfo(kTimeout), IsOk());  // comes after what gives it up
  proceed_.count_down();
  ended.wait();
  server_->Shutdown(kTimeout);  // waits for those in line
  EXPECT_EQ(begun_, 2);
}

}  // namespace
}  // namespace baton::worker
