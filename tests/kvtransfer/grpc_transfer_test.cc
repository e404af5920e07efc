#include <future>

#include "baton/v1/transfer.grpc.pb.h"
#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "gmock/gmock.h"
#include "grpcpp/client_context.h"
#include "gtest/gtest.h"
#include "kvtransfer/grpc/limits.h"
#include "kvtransfer/grpc/transfer_client.h"
#include "kvtransfer/grpc/transfer_service.h"
#include "tests/kvtransfer/live_handoff.h"
#include "tests/kvtransfer/transport_cases.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/status_matchers.h"

// Sender, transport grpc and receiver over real connections.

namespace baton::kvtransfer {
namespace {

using ::baton::testing::IsOk;
using ::baton::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::Optional;

// Stops the transfer thread until it is opened.
class Barrier {
 public:
  void Wait() { future_.wait(); }
  void Open() { promise_.set_value(); }

 private:
  std::promise<void> promise_;
  std::shared_future<void> future_ = promise_.get_future().share();
};

struct Server {
  explicit Server(const std::string& listen = "127.0.0.1:0") {
    auto started = rpc::GrpcServer::Start({.listen = listen,
                                           .services = {service->service()},
                                           .service_names = {"baton.v1.Transfer"}});
    EXPECT_THAT(started, IsOk());
    grpc = *std::move(started);
  }
  std::string endpoint() const { return absl::StrCat("127.0.0.1:", grpc->port()); }
  // As a process that dies: calls are cut off.
  void Kill() { grpc->Shutdown(std::chrono::nanoseconds(0)); }

  TransferThread callbacks;
  TransferThread transfer_thread;
  std::unique_ptr<Receiver> receiver = MakeReceiver(&callbacks);
  std::unique_ptr<TransferService> service =
      std::make_unique<TransferService>(receiver.get(), &transfer_thread);
  std::unique_ptr<rpc::GrpcServer> grpc;
};

TEST(GrpcTransferTest, MovesEveryByteOfManyHandoffs) {
  Server server;
  auto sender = MakeSender({}, MakeGrpcTransport());
  MoveManyHandoffs(*sender, *server.receiver, server.endpoint(), [](uint64_t i) { return Key(i); });
}

TEST(GrpcTransferTest, SurvivesFaults) {
  Server server;
  auto sender = MakeFaultySender(MakeGrpcTransport());
  MoveHandoffsThroughFaults(*sender, *server.receiver, server.endpoint(),
                            [](uint64_t i) { return Key(i); });
  EXPECT_GT(sender->stats().frames_resent, 0u);
}

TEST(GrpcTransferTest, CarriesVerdictAndDetail) {
  Server server;
  LiveHandoff granted({.key = Key(1), .tokens = 300, .endpoint = server.endpoint()});
  LiveHandoff longer({.key = Key(1), .tokens = 400, .endpoint = server.endpoint()});
  LiveHandoff unknown({.key = Key(2), .endpoint = server.endpoint()});
  auto sender = MakeSender({}, MakeGrpcTransport());
  granted.Expect(*server.receiver);
  longer.Open(*sender);
  longer.handoff.Finish(*sender);
  EXPECT_THAT(longer.Sent(), Optional(StatusIs(absl::StatusCode::kFailedPrecondition,
                                               HasSubstr("tokens: 400, granted 300"))));
  unknown.Open(*sender);
  unknown.handoff.Finish(*sender);
  EXPECT_THAT(unknown.Sent(), Optional(StatusIs(absl::StatusCode::kAborted)));
  server.receiver->Abort(Key(1).attempt, absl::CancelledError("test"));
  EXPECT_THAT(granted.Received(), Optional(StatusIs(absl::StatusCode::kCancelled)));
}

TEST(GrpcTransferTest, APeerThatIsNotThereFailsThePost) {
  std::string endpoint;
  {
    Server gone;
    endpoint = gone.endpoint();
  }
  LiveHandoff run({.endpoint = endpoint});
  auto sender = MakeSender({}, MakeGrpcTransport());
  run.Open(*sender);
  run.handoff.Finish(*sender);
  EXPECT_THAT(run.Sent(), Optional(StatusIs(absl::StatusCode::kUnavailable, HasSubstr(endpoint))));
}

TEST(GrpcTransferTest, APeerThatDiesFailsItsPostsAndItsSuccessorIsReachedAgain) {
  auto server = std::make_unique<Server>();
  const std::string endpoint = server->endpoint();
  auto sender = MakeSender({}, MakeGrpcTransport());
  LiveHandoff first({.key = Key(1), .tokens = 1000, .endpoint = endpoint});
  LiveHandoff second({.key = Key(2, 23), .tokens = 1000, .endpoint = endpoint});
  Barrier barrier;
  server->transfer_thread.Run([&barrier] { barrier.Wait(); });  // nothing is answered
  first.Expect(*server->receiver);
  first.Open(*sender);
  first.handoff.Finish(*sender);
  server->Kill();
  EXPECT_THAT(first.Sent(), Optional(StatusIs(absl::StatusCode::kUnavailable)));
  barrier.Open();
  server.reset();
  EXPECT_THAT(first.Received(), Optional(StatusIs(absl::StatusCode::kCancelled)));

  Server successor(endpoint);
  second.Expect(*successor.receiver);
  second.Open(*sender);
  second.handoff.Finish(*sender);
  EXPECT_THAT(second.Sent(), Optional(IsOk()));
  EXPECT_THAT(second.Received(), Optional(IsOk()));
  EXPECT_EQ(second.handoff.Problem(), "");
}

TEST(GrpcTransferTest, CancelBreaksAStuckStreamAndTheNextPostOpensAnother) {
  Barrier barrier;  // outlives the thread that it stops
  Server server;
  server.transfer_thread.Run([&barrier] { barrier.Wait(); });
  testing::FakeClock clock;
  auto sender = MakeSender({}, MakeGrpcTransport(), clock);
  LiveHandoff stuck({.key = Key(1), .tokens = 1000, .endpoint = server.endpoint()});
  LiveHandoff next({.key = Key(2), .tokens = 1000, .endpoint = server.endpoint()});
  stuck.Expect(*server.receiver);
  stuck.Open(*sender);
  stuck.handoff.Finish(*sender);
  std::future<void> sent = stuck.sent.get_future();
  while (sent.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready) {
    clock.Advance(std::chrono::seconds(1));
  }
  EXPECT_THAT(stuck.handoff.sent(), Optional(StatusIs(absl::StatusCode::kDeadlineExceeded)));
  barrier.Open();
  server.receiver->Abort(Key(1).attempt, absl::CancelledError("test"));
  stuck.Received();
  next.Expect(*server.receiver);
  next.Open(*sender);
  next.handoff.Finish(*sender);
  EXPECT_THAT(next.Sent(), Optional(IsOk()));
  EXPECT_THAT(next.Received(), Optional(IsOk()));
}

TEST(GrpcTransferTest, StopEndsIdleStreamsSoThatTheServerDrains) {
  Server server;
  auto sender = MakeSender({}, MakeGrpcTransport());
  LiveHandoff run({.key = Key(1), .endpoint = server.endpoint()});
  run.Expect(*server.receiver);
  run.Open(*sender);
  run.handoff.Finish(*sender);
  EXPECT_THAT(run.Sent(), Optional(IsOk()));
  EXPECT_THAT(run.Received(), Optional(IsOk()));
  server.service->Stop();
  server.grpc->Shutdown(std::chrono::hours(1));  // returns: no stream is left
  LiveHandoff late({.key = Key(2), .endpoint = server.endpoint()});
  late.Open(*sender);
  late.handoff.Finish(*sender);
  EXPECT_THAT(late.Sent(), Optional(StatusIs(absl::StatusCode::kUnavailable)));
}

// Speaks the protocol by hand.
class RawStream {
 public:
  explicit RawStream(const std::string& endpoint)
      : stub_(rpc::MakeChannel(endpoint, rpc::ChannelKind::kBulk)),
        stream_(stub_.Push(&context_)) {}

  void Send(const std::string& frame) {
    v1::PushRequest request;
    request.set_frame(frame);
    stream_->Write(request);
  }
  v1::PushResponse Read() {
    v1::PushResponse response;
    EXPECT_TRUE(stream_->Read(&response));
    return response;
  }
  grpc::Status HalfCloseAndFinish() {
    stream_->WritesDone();
    return stream_->Finish();
  }

 private:
  grpc::ClientContext context_;
  v1::Transfer::Stub stub_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::PushRequest, v1::PushResponse>> stream_;
};

TEST(GrpcTransferTest, AnswersGarbageInOrderAndEndsWithTheClient) {
  Server server;
  RawStream stream(server.endpoint());
  std::string sequence_seven(88, '\0');
  sequence_seven[56] = 7;
  stream.Send("");
  stream.Send(sequence_seven);
  v1::PushResponse response = stream.Read();
  EXPECT_EQ(response.verdict(), v1::FRAME_VERDICT_CORRUPT);
  EXPECT_EQ(response.frame_sequence(), 0u);
  EXPECT_THAT(response.detail(), HasSubstr("size: 0"));
  response = stream.Read();
  EXPECT_EQ(response.verdict(), v1::FRAME_VERDICT_CORRUPT);
  EXPECT_EQ(response.frame_sequence(), 7u);
  EXPECT_THAT(response.detail(), HasSubstr("magic"));
  EXPECT_TRUE(stream.HalfCloseAndFinish().ok());
}

TEST(GrpcTransferTest, CutsOffAClientWhoseFramesAreTooLarge) {
  Server server;
  RawStream largest(server.endpoint());
  largest.Send(std::string(kMaxGrpcFrameBytes, 'x'));
  EXPECT_EQ(largest.Read().verdict(), v1::FRAME_VERDICT_CORRUPT);
  EXPECT_TRUE(largest.HalfCloseAndFinish().ok());
  RawStream larger(server.endpoint());
  larger.Send(std::string(kMaxGrpcFrameBytes + 1, 'x'));
  EXPECT_EQ(larger.HalfCloseAndFinish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST(GrpcTransferTest, CutsOffAClientThatSendsMoreThanItMay) {
  Barrier barrier;  // outlives the thread that it stops
  Server server;
  server.transfer_thread.Run([&barrier] { barrier.Wait(); });
  RawStream stream(server.endpoint());
  for (int i = 0; i <= kMaxUnansweredFrames; ++i) stream.Send("x");
  EXPECT_EQ(stream.HalfCloseAndFinish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  barrier.Open();
}

}  // namespace
}  // namespace baton::kvtransfer
