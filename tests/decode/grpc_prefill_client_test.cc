#include "decode/grpc_prefill_client.h"

#include <atomic>
#include <functional>
#include <future>
#include <limits>
#include <thread>
#include <utility>

#include "baton/v1/prefill.grpc.pb.h"
#include "baton/v1/worker.grpc.pb.h"
#include "common/rpc/server.h"
#include "gtest/gtest.h"
#include "kvtransfer/grpc/handshake.h"
#include "tests/testing/fake_records.h"
#include "tests/testing/status_matchers.h"

// Prefill.Run as decode workers open it, against a worker that says what the test tells it to.

namespace baton::decode {
namespace {

using ::baton::testing::IsOk;
using ::baton::testing::StatusIs;

constexpr std::chrono::seconds kPatience{60};

kvtransfer::Manifest TestManifest() {
  return {.semantics = {{"model_hash", "abc"}},
          .layout = testing::TinyLayout(),
          .page_tokens = 256,
          .rollback_rows = 8,
          .transports = {"grpc"}};
}

class FakePrefill final : public v1::Prefill::Service, public v1::WorkerControl::Service {
 public:
  using Stream = grpc::ServerReaderWriter<v1::PrefillRunResponse, v1::PrefillRunRequest>;
  // Of each call, after Open.
  std::function<grpc::Status(grpc::ServerContext*, Stream*)> run;
  std::atomic<int> handshakes = 0;

  grpc::Status Handshake(grpc::ServerContext*, const v1::HandshakeRequest*,
                         v1::HandshakeResponse* response) override {
    response->mutable_self()->set_incarnation(static_cast<uint64_t>(++handshakes));
    *response->mutable_manifest() = kvtransfer::ManifestToProto(TestManifest());
    response->set_transport("grpc");
    return grpc::Status::OK;
  }
  grpc::Status Run(grpc::ServerContext* context, Stream* stream) override {
    v1::PrefillRunRequest open;
    if (!stream->Read(&open)) return grpc::Status::CANCELLED;
    return run(context, stream);
  }
};

class GrpcPrefillClientTest : public ::testing::Test {
 protected:
  GrpcPrefillClientTest() { Listen(0); }

  void Listen(int port) {
    auto server =
        rpc::GrpcServer::Start({.listen = "127.0.0.1:" + std::to_string(port),
                                .services = {static_cast<v1::Prefill::Service*>(&worker_),
                                             static_cast<v1::WorkerControl::Service*>(&worker_)},
                                .service_names = {}});
    ASSERT_THAT(server, IsOk());
    server_ = *std::move(server);
  }

  // How the call ends.
  absl::Status Call(std::optional<Clock::Duration> timeout = {}) {
    return CallTo("127.0.0.1:" + std::to_string(server_->port()), timeout);
  }
  absl::Status CallTo(const std::string& address, std::optional<Clock::Duration> timeout = {}) {
    auto ended = std::make_shared<std::promise<absl::Status>>();
    std::future<absl::Status> end = ended->get_future();
    PrefillOpen open{.attempt = {.request = {1, 1}, .attempt = 1},
                     .prompt = std::make_shared<const std::vector<int32_t>>(10, 20),
                     .sampling = {},
                     .timeout = timeout};
    const Peer peer{.address = address, .incarnation = 0};
    client_.Open(peer, std::move(open),
                 {.on_accepted = [](Incarnation) {},
                  .on_started = [] {},
                  .on_finished = [this](const PrefillDone& done) { done_ = done; },
                  .on_end = [ended](absl::Status status) { ended->set_value(std::move(status)); }});
    if (end.wait_for(kPatience) != std::future_status::ready) {
      return absl::InternalError("did not end");
    }
    return end.get();
  }

  FakePrefill worker_;
  std::unique_ptr<rpc::GrpcServer> server_;
  Metrics registry_{"decode"};
  WorkerMetrics metrics_{registry_};
  PrefillDone done_;
  GrpcPrefillClient client_{TestManifest(), v1::WorkerRef(), metrics_};
};

TEST_F(GrpcPrefillClientTest, ARefusalForWantOfRoomIsNoReasonToShakeHandsAgain) {
  worker_.run = [](auto*, auto*) {
    return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "the queue is full");
  };
  for (int i = 0; i < 3; ++i) EXPECT_THAT(Call(), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(worker_.handshakes, 1);
}

TEST_F(GrpcPrefillClientTest, AWorkerThatMayBeAnotherNowIsAskedWhoItIs) {
  worker_.run = [](auto*, auto*) {
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "the prefill worker is draining");
  };
  EXPECT_THAT(Call(), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(Call(), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(worker_.handshakes, 2);
}

TEST_F(GrpcPrefillClientTest, ARestartedWorkerIsTriedOnceMoreUnderItsNewIncarnation) {
  worker_.run = [](auto*, auto*) { return grpc::Status::OK; };
  EXPECT_THAT(Call(), IsOk());
  std::atomic<int> calls = 0;
  worker_.run = [&](auto*, auto*) {
    return ++calls == 1 ? grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "incarnation")
                        : grpc::Status::OK;
  };
  EXPECT_THAT(Call(), IsOk());
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(worker_.handshakes, 2);
}

// gRPC would answer with the last failure for up to a second more.
// Else the first token of one could be taken for that of the other.
TEST_F(GrpcPrefillClientTest, NobodyElseIsAskedWithinACallInWhichSomethingWasSaid) {
  worker_.run = [](auto*, auto*) { return grpc::Status::OK; };
  EXPECT_THAT(Call(), IsOk());  // from now on there is an agreement
  std::atomic<int> calls = 0;
  worker_.run = [&](auto*, FakePrefill::Stream* stream) {
    ++calls;
    v1::PrefillRunResponse response;
    response.mutable_finished()->set_first_token_id(7);
    stream->Write(response);
    return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "incarnation");
  };
  EXPECT_THAT(Call(), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_EQ(calls, 1);
}

TEST_F(GrpcPrefillClientTest, AWorkerThatIsBackIsReachedAtOnce) {
  worker_.run = [](auto*, auto*) { return grpc::Status::OK; };
  const int port = server_->port();
  const std::string address = "127.0.0.1:" + std::to_string(port);
  EXPECT_THAT(Call(), IsOk());
  server_.reset();
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(CallTo(address), StatusIs(absl::StatusCode::kUnavailable));
  }
  Listen(port);
  EXPECT_THAT(CallTo(address), IsOk());
}

// A worker that is there, and does nothing.
TEST_F(GrpcPrefillClientTest, AddressesThatNobodyAnswersAtAreForgotten) {
  worker_.run = [](auto*, auto*) { return grpc::Status::OK; };
  EXPECT_THAT(Call(), IsOk());
  for (int port = 1; port <= 5; ++port) {
    EXPECT_THAT(CallTo("127.0.0.1:" + std::to_string(port)),
                StatusIs(absl::StatusCode::kUnavailable));
  }
  EXPECT_EQ(client_.links(), 6u);
  client_.DropDeadLinks(std::chrono::hours(1));  // somebody may come back
  EXPECT_EQ(client_.links(), 6u);
  // A call that has just ended may still hold its link for a moment.
  for (int i = 0; i < 1000 && client_.links() > 1; ++i) {
    client_.DropDeadLinks(std::chrono::seconds(0));
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(client_.links(), 1u);
  EXPECT_THAT(Call(), IsOk());
  EXPECT_EQ(worker_.handshakes, 1);
}

TEST_F(GrpcPrefillClientTest, TheDeadlineEndsACallThatNobodyAnswers) {
  worker_.run = [](grpc::ServerContext* context, auto* stream) {
    v1::PrefillRunRequest never;
    stream->Read(&never);  // returns when the call is over
    return context->IsCancelled() ? grpc::Status::CANCELLED : grpc::Status::OK;
  };
  EXPECT_THAT(Call(std::chrono::milliseconds(200)), StatusIs(absl::StatusCode::kDeadlineExceeded));
}

TEST_F(GrpcPrefillClientTest, DurationsThatAWorkerMakesUpCanBeAdded) {
  worker_.run = [](auto*, auto* stream) {
    v1::PrefillRunResponse response;
    response.mutable_finished()->set_queue_us(std::numeric_limits<uint64_t>::max());
    response.mutable_finished()->set_compute_us(std::numeric_limits<uint64_t>::max());
    stream->Write(response);
    return grpc::Status::OK;
  };
  EXPECT_THAT(Call(), IsOk());
  EXPECT_GT(done_.queued + done_.computed, std::chrono::hours(24));
}

}  // namespace
}  // namespace baton::decode
