#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "absl/strings/str_cat.h"
#include "baton/v1/inference.grpc.pb.h"
#include "common/rpc/channel.h"
#include "common/rpc/status.h"
#include "google/protobuf/unknown_field_set.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "router/chat/markup.h"
#include "router/dispatch/generation_request.h"
#include "tests/router/service/router_fixture.h"
#include "tests/testing/test_path.h"

namespace baton::router {
namespace {

using baton::testing::Answer;
using std::chrono::milliseconds;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

class GrpcFrontTest : public RouterFixture {
 protected:
  struct Result {
    absl::Status status;
    std::string text;
    std::vector<int32_t> token_ids;
    v1::GenerateResponse last;
  };

  std::unique_ptr<v1::Inference::Stub> Stub() {
    return v1::Inference::NewStub(rpc::MakeChannel(
        "127.0.0.1:" + std::to_string(router_->ports().grpc), rpc::ChannelKind::kControl));
  }

  Result Generate(const v1::GenerateRequest& request) {
    const std::unique_ptr<v1::Inference::Stub> stub = Stub();
    grpc::ClientContext context;
    const auto reader = stub->Generate(&context, request);
    Result result;
    v1::GenerateResponse response;
    while (reader->Read(&response)) {
      result.text += response.text();
      result.token_ids.insert(result.token_ids.end(), response.token_ids().begin(),
                              response.token_ids().end());
      result.last = response;
    }
    result.status = rpc::FromGrpc(reader->Finish());
    return result;
  }
};

TEST_F(GrpcFrontTest, StreamsTextTokensUsageAndHowItWasServed) {
  StartReady();
  v1::GenerateRequest request;
  request.set_prompt("The grass is green.");
  request.mutable_sampling()->set_max_tokens(100);
  const Result result = Generate(request);  // the fake echoes
  ASSERT_THAT(result.status, baton::testing::IsOk());
  EXPECT_EQ(result.text, "The grass is green.");
  const std::vector<int32_t> ids = Tokens().Encode("The grass is green.");
  EXPECT_THAT(result.token_ids, ElementsAreArray(ids));
  EXPECT_EQ(result.last.usage().completion_tokens(), ids.size());
  EXPECT_EQ(result.last.finish_reason(), v1::FINISH_REASON_STOP);
  EXPECT_EQ(result.last.served_by().handoff_bytes(), 1000u);
  const RequestId id{.high = result.last.request_id().high(),
                     .low = result.last.request_id().low()};
  EXPECT_NE(id.high, 0u);
  EXPECT_EQ(result.last.id(), id.ToString());
}

TEST_F(GrpcFrontTest, TheClientsRequestIdComesBackAsMetadata) {
  StartReady();
  v1::GenerateRequest request;
  request.set_prompt("The grass");
  const auto ask = [&](const char* id) {
    grpc::ClientContext context;
    if (id != nullptr) context.AddMetadata("x-request-id", id);
    const std::unique_ptr<v1::Inference::Stub> stub = Stub();
    const auto reader = stub->Generate(&context, request);
    reader->WaitForInitialMetadata();
    const auto found = context.GetServerInitialMetadata().find("x-request-id");
    EXPECT_NE(found, context.GetServerInitialMetadata().end());
    std::string answered(found->second.data(), found->second.size());
    context.TryCancel();
    return answered;
  };
  EXPECT_EQ(ask("its-own.1"), "its-own.1");
  EXPECT_EQ(ask(nullptr).size(), RequestId().ToString().size()) << "the router's own";
}

TEST_F(GrpcFrontTest, RendersChatsAndTakesTokenIds) {
  StartReady();
  v1::GenerateRequest request;
  v1::ChatMessage* message = request.mutable_chat()->add_messages();
  message->set_role("user");
  message->set_content("green");
  request.mutable_sampling()->set_max_tokens(1);
  ASSERT_THAT(Generate(request).status, baton::testing::IsOk());
  const std::vector<v1::DecodeGenerateRequest> seen =
      decode_[0]->requests().empty() ? decode_[1]->requests() : decode_[0]->requests();
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].prompt_tokens(0), Tokens().AddedTokenId(kBosToken));
  request.mutable_token_ids()->add_ids(7);
  const Result result = Generate(request);
  EXPECT_THAT(result.token_ids, ElementsAreArray({7}));
  EXPECT_EQ(result.last.finish_reason(), v1::FINISH_REASON_LENGTH);
}

TEST_F(GrpcFrontTest, StopsAtAStopString) {
  StartReady();
  v1::GenerateRequest request;
  request.set_prompt("red green blue");
  request.add_stop(" blue");
  const Result result = Generate(request);
  EXPECT_EQ(result.text, "red green");
  EXPECT_EQ(result.last.matched_stop(), " blue");
  EXPECT_EQ(result.last.served_by().handoff_bytes(), 1000u);
}

TEST_F(GrpcFrontTest, ErrorsAreStatusesThatNameTheField) {
  StartReady();
  v1::GenerateRequest request;
  EXPECT_THAT(Generate(request).status,
              baton::testing::StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("input")));
  request.set_prompt("x");
  request.mutable_sampling()->set_temperature(-1);
  EXPECT_THAT(Generate(request).status, baton::testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                                                 HasSubstr("temperature")));
  request.clear_sampling();
  request.add_stop("");
  EXPECT_THAT(Generate(request).status,
              baton::testing::StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("stop")));
  request.clear_stop();
  request.set_model("gpt-5");
  EXPECT_EQ(
      Generate(request).status,
      absl::NotFoundError("the model 'gpt-5' does not exist; this router serves 'needle-17m'"))
      << "details, which statuses have among us, are not for clients";
  request.set_model(std::string(100'000, 'x'));
  EXPECT_THAT(Generate(request).status, baton::testing::StatusIs(absl::StatusCode::kNotFound))
      << "the message fits a header";
  std::string accents = "x";
  for (int i = 0; i < 60; ++i) accents += "é";
  request.set_model(accents);
  EXPECT_THAT(Generate(request).status,
              baton::testing::StatusIs(absl::StatusCode::kNotFound,
                                       HasSubstr(absl::StrCat("'", accents.substr(0, 99), "...'"))))
      << "cut between two characters";
  request.clear_model();
  request.mutable_chat()->add_messages()->set_role("robot");
  EXPECT_THAT(Generate(request).status,
              baton::testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                       HasSubstr("chat.messages[0].role")));
}

// As a later release may have, which this router would otherwise answer as if it were not there.
TEST_F(GrpcFrontTest, AFieldThatTheRouterDoesNotKnowIsRefused) {
  StartReady();
  const auto expect_refused = [&](const char* name, auto part) {
    v1::GenerateRequest request;
    request.mutable_chat()->add_messages()->set_role("user");
    google::protobuf::Message& message = part(request);
    message.GetReflection()->MutableUnknownFields(&message)->AddVarint(77, 1);
    EXPECT_EQ(Generate(request).status,
              absl::InvalidArgumentError(
                  absl::StrCat(name, " has a field of number 77 that this router does not know")));
  };
  using Message = google::protobuf::Message;
  expect_refused("the request", [](auto& request) -> Message& { return request; });
  expect_refused("sampling", [](auto& request) -> Message& { return *request.mutable_sampling(); });
  expect_refused("chat.messages[0]", [](auto& request) -> Message& {
    return *request.mutable_chat()->mutable_messages(0);
  });
}

// A string that is not UTF-8 is what a client in C++ sends without knowing.
TEST_F(GrpcFrontTest, AMessageThatIsNoneSaysSo) {
  StartReady();
  for (const std::string& bytes : {std::string("\x12\x01\xff"), std::string("\x12")}) {
    const grpc::Slice slice(bytes);
    const grpc::ByteBuffer request(&slice, 1);
    grpc::GenericStub stub(rpc::MakeChannel(absl::StrCat("127.0.0.1:", router_->ports().grpc),
                                            rpc::ChannelKind::kControl));
    grpc::ClientContext context;
    grpc::ByteBuffer response;
    std::promise<grpc::Status> done;
    stub.UnaryCall(&context, "/baton.v1.Inference/Generate", {}, &request, &response,
                   [&](grpc::Status status) { done.set_value(std::move(status)); });
    EXPECT_THAT(rpc::FromGrpc(done.get_future().get()),
                baton::testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                         HasSubstr("no message that is a GenerateRequest")));
  }
}

TEST_F(GrpcFrontTest, AMessageThatIsTooLongSaysSo) {
  StartReady();
  v1::GenerateRequest request;
  request.set_prompt(std::string(5 << 20, 'x'));
  const auto stub = v1::Inference::NewStub(
      grpc::CreateChannel(absl::StrCat("127.0.0.1:", router_->ports().grpc),
                          grpc::InsecureChannelCredentials()));  // which sends any
  grpc::ClientContext context;
  EXPECT_THAT(
      rpc::FromGrpc(stub->Generate(&context, request)->Finish()),
      baton::testing::StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("larger than max")));
}

TEST_F(GrpcFrontTest, LimitsAreThoseOfTheHttpFront) {
  StartReady();
  v1::GenerateRequest request;
  request.set_prompt("x");
  request.mutable_sampling()->set_max_tokens(1);
  request.mutable_sampling()->set_top_p(kMinTopP);
  request.mutable_sampling()->set_top_k(kMinTopK);
  for (size_t i = 0; i < kMaxStopStrings; ++i) request.add_stop("stop");
  for (size_t i = 0; i < kMaxStopTokenIds; ++i) {
    request.mutable_sampling()->add_stop_token_ids(5);
  }
  request.mutable_sampling()->set_presence_penalty(-kMaxPenalty);
  request.mutable_sampling()->set_frequency_penalty(kMaxPenalty);
  request.mutable_sampling()->set_repetition_penalty(kMinRepetitionPenalty);
  for (size_t i = 0; i < kMaxLogitBiases; ++i) {
    (*request.mutable_sampling()->mutable_logit_bias())[static_cast<int32_t>(i)] = kMaxLogitBias;
  }
  EXPECT_THAT(Generate(request).status, baton::testing::IsOk());

  const auto expect_refused = [&](const std::string& field, auto change) {
    v1::GenerateRequest beyond = request;
    change(beyond);
    EXPECT_THAT(Generate(beyond).status,
                baton::testing::StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(field)));
  };
  expect_refused("stop has 17", [](auto& beyond) { beyond.add_stop("stop"); });
  expect_refused("stop holds a string of 1025 bytes",
                 [](auto& beyond) { *beyond.mutable_stop(0) = std::string(1025, 'x'); });
  expect_refused("stop_token_ids has 1025",
                 [](auto& beyond) { beyond.mutable_sampling()->add_stop_token_ids(5); });
  expect_refused("presence_penalty",
                 [](auto& beyond) { beyond.mutable_sampling()->set_presence_penalty(2.5f); });
  expect_refused("frequency_penalty",
                 [](auto& beyond) { beyond.mutable_sampling()->set_frequency_penalty(-2.5f); });
  expect_refused("repetition_penalty",
                 [](auto& beyond) { beyond.mutable_sampling()->set_repetition_penalty(0); });
  expect_refused("logit_bias has 301",
                 [](auto& beyond) { (*beyond.mutable_sampling()->mutable_logit_bias())[300] = 1; });
  expect_refused("logit_bias[7] is 101",
                 [](auto& beyond) { (*beyond.mutable_sampling()->mutable_logit_bias())[7] = 101; });
  expect_refused("logit_bias has the token id 1024", [](auto& beyond) {
    beyond.mutable_sampling()->clear_logit_bias();
    (*beyond.mutable_sampling()->mutable_logit_bias())[1024] = 1;
  });
  expect_refused("top_k", [](auto& beyond) { beyond.mutable_sampling()->set_top_k(-2); });
}

TEST_F(GrpcFrontTest, ACancelledCallCancelsTheWorker) {
  decode_.pop_back();
  decode_[0]->SetBehaviour([](const v1::DecodeGenerateRequest&) {
    return Plan{.messages = {}, .status = {}, .hang = true};
  });
  Start();
  ASSERT_TRUE(WaitForReady(3));
  const std::unique_ptr<v1::Inference::Stub> stub = Stub();
  grpc::ClientContext context;
  v1::GenerateRequest request;
  request.set_prompt("x");
  const auto reader = stub->Generate(&context, request);
  ASSERT_TRUE(decode_[0]->WaitForRequests(1));
  context.TryCancel();
  EXPECT_TRUE(decode_[0]->WaitForCancelled(1));
  EXPECT_THAT(rpc::FromGrpc(reader->Finish()),
              baton::testing::StatusIs(absl::StatusCode::kCancelled));
}

TEST_F(GrpcFrontTest, TheCallersDeadlineIsPassedOn) {
  decode_.pop_back();
  decode_[0]->SetBehaviour([](const v1::DecodeGenerateRequest&) {
    return Plan{.messages = {}, .status = {}, .hang = true};
  });
  Start();
  ASSERT_TRUE(WaitForReady(3));
  const std::unique_ptr<v1::Inference::Stub> stub = Stub();
  grpc::ClientContext context;
  rpc::SetTimeout(context, milliseconds(200));
  v1::GenerateRequest request;
  request.set_prompt("x");
  const auto reader = stub->Generate(&context, request);
  v1::GenerateResponse response;
  EXPECT_FALSE(reader->Read(&response));
  EXPECT_THAT(rpc::FromGrpc(reader->Finish()),
              baton::testing::StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_TRUE(decode_[0]->WaitForCancelled(1));
}

// A call whose message is still to come.
class Announced final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  void OnDone(const grpc::Status& status) override { end_.set_value(rpc::FromGrpc(status)); }
  absl::Status End() { return end_.get_future().get(); }

 private:
  std::promise<absl::Status> end_;
};

TEST_F(GrpcFrontTest, ACallWithoutAMessageEndsAfterAWhile) {
  RouterConfig config = Config();
  config.body_timeout = milliseconds(100);
  StartReady(config);
  grpc::GenericStub stub(rpc::MakeChannel(absl::StrCat("127.0.0.1:", router_->ports().grpc),
                                          rpc::ChannelKind::kControl));
  Announced call;
  grpc::ClientContext context;
  stub.PrepareBidiStreamingCall(&context, "/baton.v1.Inference/Generate", {}, &call);
  call.StartCall();
  EXPECT_THAT(call.End(), baton::testing::StatusIs(absl::StatusCode::kDeadlineExceeded,
                                                   HasSubstr("did not arrive in time")));
}

TEST_F(GrpcFrontTest, WithKeysOnlyWhoHasOneMayAsk) {
  const std::string path = ::testing::TempDir() + "baton_grpc_front_keys";
  std::ofstream(path) << "sk-0123456789abcdef\n";
  RouterConfig config = Config();
  config.api_keys_file = path;
  StartReady(config);
  v1::GenerateRequest request;
  request.set_prompt("red");
  EXPECT_THAT(Generate(request).status,
              baton::testing::StatusIs(absl::StatusCode::kUnauthenticated, HasSubstr("key")));
  const std::unique_ptr<v1::Inference::Stub> stub = Stub();
  v1::ListModelsResponse response;
  grpc::ClientContext without;
  EXPECT_EQ(stub->ListModels(&without, {}, &response).error_code(),
            grpc::StatusCode::UNAUTHENTICATED);
  grpc::ClientContext with;
  with.AddMetadata("authorization", "Bearer sk-0123456789abcdef");
  EXPECT_TRUE(stub->ListModels(&with, {}, &response).ok());
  std::filesystem::remove(path);
}

TEST_F(GrpcFrontTest, AKeyIsLookedAtBeforeTheMessageIsRead) {
  const std::string path = baton::testing::TestPath("grpc_front_keys");
  std::ofstream(path) << "sk-0123456789abcdef\n";
  RouterConfig config = Config();
  config.api_keys_file = path;
  StartReady(config);
  grpc::GenericStub stub(rpc::MakeChannel(absl::StrCat("127.0.0.1:", router_->ports().grpc),
                                          rpc::ChannelKind::kControl));
  for (const char* method : {"Generate", "ListModels"}) {
    Announced call;
    grpc::ClientContext context;
    stub.PrepareBidiStreamingCall(&context, absl::StrCat("/baton.v1.Inference/", method), {},
                                  &call);
    call.StartCall();
    EXPECT_THAT(call.End(), baton::testing::StatusIs(absl::StatusCode::kUnauthenticated));
  }
  Announced call;
  grpc::ClientContext context;
  context.AddMetadata("authorization", "Bearer sk-0123456789abcdef");
  stub.PrepareBidiStreamingCall(&context, "/baton.v1.Inference/Generate", {}, &call);
  call.StartWritesDone();
  call.StartCall();
  EXPECT_THAT(call.End(), baton::testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                                   HasSubstr("no message")));
  std::filesystem::remove(path);
}

TEST_F(GrpcFrontTest, HealthIsThatOfWhatARequestWouldFind) {
  for (const auto& worker : decode_) {
    worker->SetInfo([](v1::GetInfoResponse& info) { info.set_ready(false); });
  }
  Start();
  // grpc.health.v1.Health.Check of "", by its bytes: in the response status = 1.
  const auto serving = [&] {
    grpc::GenericStub stub(rpc::MakeChannel(absl::StrCat("127.0.0.1:", router_->ports().grpc),
                                            rpc::ChannelKind::kControl));
    const grpc::Slice nothing;
    const grpc::ByteBuffer request(&nothing, 1);
    grpc::ClientContext context;
    grpc::ByteBuffer response;
    std::promise<grpc::Status> done;
    stub.UnaryCall(&context, "/grpc.health.v1.Health/Check", grpc::StubOptions(), &request,
                   &response, [&](grpc::Status status) { done.set_value(std::move(status)); });
    EXPECT_TRUE(done.get_future().get().ok());
    std::vector<grpc::Slice> slices;
    EXPECT_TRUE(response.Dump(&slices).ok());
    return !slices.empty() && slices[0].size() == 2 && slices[0].begin()[1] == 1;
  };
  EXPECT_FALSE(serving());
  for (const auto& worker : decode_) {
    worker->SetInfo([](v1::GetInfoResponse& info) { info.set_ready(true); });
  }
  ASSERT_TRUE(WaitForReady(4));
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (!serving() && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  EXPECT_TRUE(serving());
}

TEST_F(GrpcFrontTest, ListsItsModel) {
  StartReady();
  const std::unique_ptr<v1::Inference::Stub> stub = Stub();
  grpc::ClientContext context;
  v1::ListModelsResponse response;
  ASSERT_TRUE(stub->ListModels(&context, {}, &response).ok());
  EXPECT_THAT(response.models(), ElementsAreArray({"needle-17m"}));
}

}  // namespace
}  // namespace baton::router
