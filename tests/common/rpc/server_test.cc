#include "common/rpc/server.h"

#include <thread>

#include "common/rpc/channel.h"
#include "common/rpc/client_stream.h"
#include "common/rpc/server_stream.h"
#include "common/rpc/worker_control_client.h"
#include "gmock/gmock.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "tests/common/rpc/fake_services.h"
#include "tests/common/rpc/health.h"
#include "tests/common/rpc/relay.h"
#include "tests/testing/status_matchers.h"

namespace baton::rpc {
namespace {

using namespace std::chrono_literals;
using ::baton::testing::IsOk;
using ::baton::testing::IsOkAndHolds;
using ::baton::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kWorkerControl[] = "baton.v1.WorkerControl";

grpc::ByteBuffer Bytes(const std::string& text) {
  const grpc::Slice slice(text);
  return grpc::ByteBuffer(&slice, 1);
}

std::string TextOf(const grpc::ByteBuffer& bytes) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(bytes.Dump(&slices).ok());
  std::string text;
  for (const grpc::Slice& slice : slices) {
    text.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return text;
}

class ServerTest : public ::testing::Test {
 protected:
  ServerTest() {
    control_.get_info = [](auto*, v1::GetInfoResponse* response, auto* reactor) {
      response->set_model("tiny");
      reactor->Finish(grpc::Status::OK);
    };
    decode_.generate = [this](auto*, auto*) {
      auto writer = QueuedServerWriter<v1::DecodeGenerateResponse>::Create(
          4, [this](absl::Status status) { server_done_.Put(status); });
      writers_.Put(writer);
      return writer->reactor();
    };
    auto server = GrpcServer::Start({.listen = "127.0.0.1:0",
                                     .services = {&control_, &decode_},
                                     .service_names = {kWorkerControl}});
    EXPECT_THAT(server, IsOk());
    server_ = *std::move(server);
  }

  // Opens a stream that stays silent.
  void Generate(const std::string& address) {
    auto call = ServerStreamCall<v1::DecodeGenerateResponse>::Create(
        {.on_message = [](auto&&) {},
         .on_done = [this](absl::Status status) { client_done_.Put(status); }});
    const auto stub = v1::Decode::NewStub(MakeChannel(address, ChannelKind::kBulk));
    const v1::DecodeGenerateRequest request;
    call->Start(
        [&](auto* context, auto* reactor) { stub->async()->Generate(context, &request, reactor); });
  }

  FakeWorkerControl control_;
  FakeDecode decode_;
  Mailbox<std::shared_ptr<QueuedServerWriter<v1::DecodeGenerateResponse>>> writers_;
  Mailbox<absl::Status> server_done_, client_done_;
  std::unique_ptr<GrpcServer> server_;
};

TEST_F(ServerTest, APortThatIsTakenIsAnErrorThatNamesIt) {
  const auto second = GrpcServer::Start({.listen = AddressOf(*server_)});
  EXPECT_THAT(second, StatusIs(absl::StatusCode::kUnavailable, HasSubstr(AddressOf(*server_))));
}

TEST_F(ServerTest, AnAddressThatIsNoneIsAnErrorThatNamesIt) {
  EXPECT_THAT(GrpcServer::Start({.listen = "nowhere.invalid:1"}),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("nowhere.invalid:1")));
  for (const std::string listen : {"", "127.0.0.1:99999"}) {  // gRPC would take it modulo 65536
    EXPECT_THAT(GrpcServer::Start({.listen = listen}),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(listen)));
  }
}

TEST_F(ServerTest, HealthIsReportedForTheServerAndEachService) {
  EXPECT_THAT(Health(AddressOf(*server_), ""), IsOkAndHolds(1));
  EXPECT_THAT(Health(AddressOf(*server_), kWorkerControl), IsOkAndHolds(1));
  EXPECT_THAT(Health(AddressOf(*server_), "no.Such"), StatusIs(absl::StatusCode::kNotFound));
  server_->SetServing(false);
  EXPECT_THAT(Health(AddressOf(*server_), ""), IsOkAndHolds(2));
  EXPECT_THAT(Health(AddressOf(*server_), kWorkerControl), IsOkAndHolds(2));
  server_->SetServing(true);
  EXPECT_THAT(Health(AddressOf(*server_), ""), IsOkAndHolds(1));
}

TEST_F(ServerTest, AServerMayStartNotServing) {
  BATON_ASSERT_OK_AND_ASSIGN(
      const auto server,
      GrpcServer::Start({.listen = "127.0.0.1:0", .service_names = {"x"}, .serving = false}));
  EXPECT_THAT(Health(AddressOf(*server), ""), IsOkAndHolds(2));
  EXPECT_THAT(Health(AddressOf(*server), "x"), IsOkAndHolds(2));
}

TEST_F(ServerTest, ReflectionListsTheServices) {
  Mailbox<std::string> answers;
  Mailbox<absl::Status> done;
  auto call = BidiCall<grpc::ByteBuffer, grpc::ByteBuffer>::Create(
      4, {.on_message = [&](grpc::ByteBuffer&& bytes) { answers.Put(TextOf(bytes)); },
          .on_done = [&](absl::Status status) { done.Put(status); }});
  grpc::GenericStub stub(MakeChannel(AddressOf(*server_), ChannelKind::kControl));
  call->Start([&](auto* context, auto* reactor) {
    stub.PrepareBidiStreamingCall(context,
                                  "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
                                  grpc::StubOptions(), reactor);
  });
  call->Write(Bytes(std::string("\x3a\x00", 2)));  // list_services = ""
  EXPECT_THAT(answers.Next(), AllOf(HasSubstr(kWorkerControl), HasSubstr("baton.v1.Decode"),
                                    HasSubstr("grpc.health.v1.Health")));
  call->HalfClose();
  EXPECT_THAT(done.Next(), IsOk());
}

TEST_F(ServerTest, ShutdownWaitsForARunningCallWithinTheGrace) {
  Generate(AddressOf(*server_));
  const auto writer = writers_.Next();
  std::jthread drain([&] { server_->Shutdown(10min); });
  // New calls are refused while the old one still runs.
  const WorkerControlClient client(AddressOf(*server_));
  while (client.GetInfo(60s).ok()) std::this_thread::yield();
  EXPECT_TRUE(writer->Write(v1::DecodeGenerateResponse()));
  writer->Finish(absl::OkStatus());
  drain.join();
  EXPECT_THAT(client_done_.Next(), IsOk());
  EXPECT_THAT(server_done_.Next(), IsOk());
  server_->Shutdown(0s);  // idempotent
}

// A partition, as TCP shows it: the connection stands, nothing comes. Keepalive on either side is
// what ends the call.
TEST_F(ServerTest, ASilentConnectionEndsTheCallOnBothSides) {
  Relay relay(server_->port());
  Generate(absl::StrCat("127.0.0.1:", relay.port()));
  writers_.Next();
  relay.Freeze();
  EXPECT_THAT(client_done_.Next(), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(server_done_.Next(), StatusIs(absl::StatusCode::kCancelled));
}

TEST_F(ServerTest, AResetConnectionEndsTheCallOnBothSides) {
  auto relay = std::make_unique<Relay>(server_->port());
  Generate(absl::StrCat("127.0.0.1:", relay->port()));
  writers_.Next();
  relay.reset();
  EXPECT_THAT(client_done_.Next(), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(server_done_.Next(), StatusIs(absl::StatusCode::kCancelled));
}

TEST_F(ServerTest, WorkerControlAnswersBlockingAndAsynchronousCallers) {
  Mailbox<absl::StatusOr<v1::GetInfoResponse>> infos;
  {
    const WorkerControlClient client(AddressOf(*server_));
    BATON_ASSERT_OK_AND_ASSIGN(const v1::GetInfoResponse info, client.GetInfo(60s));
    EXPECT_EQ(info.model(), "tiny");
    client.GetInfo(60s, [&](auto response) { infos.Put(std::move(response)); });
  }
  const auto info = infos.Next();
  ASSERT_THAT(info, IsOk());
  EXPECT_EQ(info->model(), "tiny");
}

TEST_F(ServerTest, AHandshakesRefusalNamesTheWorkerAndKeepsItsDetail) {
  control_.handshake = [](const v1::HandshakeRequest* request, auto*) {
    absl::Status status =
        absl::FailedPreconditionError(absl::StrCat("page size of ", request->caller().address()));
    AttachFailureDetail(v1::FailureDetail(), status);
    return ToGrpc(status);
  };
  const WorkerControlClient client(AddressOf(*server_));
  v1::HandshakeRequest request;
  request.mutable_caller()->set_address("me:1");
  const auto response = client.Handshake(request, 60s);
  EXPECT_THAT(response, StatusIs(absl::StatusCode::kFailedPrecondition,
                                 absl::StrCat(AddressOf(*server_), ": page size of me:1")));
  EXPECT_TRUE(GetFailureDetail(response.status()).has_value());
}

TEST_F(ServerTest, AnUnreachableWorkerIsUnavailableAtOnce) {
  const std::string address = AddressOf(*server_);
  server_.reset();
  const WorkerControlClient client(address);
  EXPECT_THAT(client.GetInfo(10min), StatusIs(absl::StatusCode::kUnavailable, HasSubstr(address)));
}

TEST_F(ServerTest, AWorkerThatDoesNotAnswerRunsIntoTheDeadlineThatItSees) {
  Mailbox<std::optional<std::chrono::nanoseconds>> remaining;
  Mailbox<grpc::ServerUnaryReactor*> reactors;
  control_.get_info = [&](grpc::CallbackServerContext* context, auto*, auto* reactor) {
    remaining.Put(RemainingTime(*context));
    reactors.Put(reactor);
  };
  const WorkerControlClient client(AddressOf(*server_));
  EXPECT_THAT(client.GetInfo(100ms), StatusIs(absl::StatusCode::kDeadlineExceeded));
  const auto seen = remaining.Next();
  ASSERT_TRUE(seen.has_value());
  EXPECT_LT(*seen, 1s);  // gRPC rounds a timeout up on its way
  reactors.Next()->Finish(grpc::Status::OK);
}

// A message that the server has no room for, to a service that anybody may call: it is not read to
// its end, only to be found too long.
TEST(ServerLimitsTest, MessagesThatAreBeingReceivedShareABudget) {
  constexpr size_t kSent = 64 << 20;
  BATON_ASSERT_OK_AND_ASSIGN(const auto server, GrpcServer::Start({.listen = "127.0.0.1:0",
                                                                   .max_buffered_bytes = 8 << 20}));
  grpc::GenericStub stub(
      grpc::CreateChannel(AddressOf(*server), grpc::InsecureChannelCredentials()));
  const grpc::ByteBuffer request = Bytes(std::string(kSent, 'x'));
  grpc::ClientContext context;
  SetTimeout(context, 60s);
  grpc::ByteBuffer response;
  Mailbox<absl::Status> ended;
  stub.UnaryCall(&context, "/grpc.health.v1.Health/Check", grpc::StubOptions(), &request, &response,
                 [&](const grpc::Status& status) { ended.Put(FromGrpc(status)); });
  EXPECT_THAT(ended.Next(),
              StatusIs(absl::StatusCode::kResourceExhausted, Not(HasSubstr("larger than max"))));
  EXPECT_THAT(Health(AddressOf(*server), ""), IsOkAndHolds(1));
}

TEST_F(ServerTest, WithoutADeadlineThereIsNoRemainingTime) {
  Mailbox<bool> limited;
  control_.get_info = [&](grpc::CallbackServerContext* context, auto*, auto* reactor) {
    limited.Put(RemainingTime(*context).has_value());
    reactor->Finish(grpc::Status::OK);
  };
  const auto stub =
      v1::WorkerControl::NewStub(MakeChannel(AddressOf(*server_), ChannelKind::kControl));
  grpc::ClientContext context;
  v1::GetInfoResponse response;
  EXPECT_TRUE(stub->GetInfo(&context, v1::GetInfoRequest(), &response).ok());
  EXPECT_FALSE(limited.Next());
}

}  // namespace
}  // namespace baton::rpc
