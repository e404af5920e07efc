#include <thread>

#include "common/rpc/channel.h"
#include "common/rpc/client_stream.h"
#include "common/rpc/server_stream.h"
#include "gmock/gmock.h"
#include "tests/common/rpc/fake_services.h"
#include "tests/testing/status_matchers.h"

namespace baton::rpc {
namespace {

using namespace std::chrono_literals;
using ::baton::testing::IsOk;
using ::baton::testing::StatusIs;
using ::testing::AnyOf;
using ::testing::HasSubstr;

using Request = v1::PrefillRunRequest;
using Response = v1::PrefillRunResponse;
using Tokens = v1::DecodeGenerateResponse;
using Writer = QueuedServerWriter<Tokens>;
using ServerBidi = QueuedServerBidi<Request, Response>;
using ClientBidi = BidiCall<Request, Response>;

constexpr auto kCancelled = absl::StatusCode::kCancelled;
constexpr auto kExhausted = absl::StatusCode::kResourceExhausted;

Tokens Token(int32_t id) {
  Tokens tokens;
  tokens.add_token_ids(id);
  return tokens;
}

// A message of about 256 KiB, so that a few fill the connection's window.
Tokens ManyTokens() {
  Tokens tokens;
  for (int i = 0; i < 64 << 10; ++i) tokens.add_token_ids(1 << 28);
  return tokens;
}

Request OpenOf(uint64_t hash) {
  Request request;
  request.mutable_open()->set_semantics_hash(hash);
  return request;
}

TEST(WriteQueueTest, OneMessageIsWrittenAtATimeAndDoesNotCountAsWaiting) {
  WriteQueue<int> queue(2);
  EXPECT_EQ(queue.StartNext(), nullptr);
  EXPECT_TRUE(queue.Push(1));
  EXPECT_EQ(*queue.StartNext(), 1);
  EXPECT_TRUE(queue.Push(2));
  EXPECT_TRUE(queue.Push(3));
  EXPECT_FALSE(queue.Push(4));
  EXPECT_EQ(queue.StartNext(), nullptr);
  queue.Written();
  EXPECT_EQ(*queue.StartNext(), 2);
  queue.Discard();
  EXPECT_FALSE(queue.idle());
  queue.Written();
  EXPECT_TRUE(queue.idle());
}

TEST(WriteQueueTest, BytesThatWaitAreLimitedButForOneMessage) {
  const size_t bytes = Token(1).ByteSizeLong();
  WriteQueue<Tokens> queue(10, 2 * bytes);
  EXPECT_TRUE(queue.Push(ManyTokens()));
  EXPECT_FALSE(queue.Push(Token(1)));
  ASSERT_NE(queue.StartNext(), nullptr);
  EXPECT_TRUE(queue.Push(Token(1)));
  EXPECT_TRUE(queue.Push(Token(1)));
  EXPECT_FALSE(queue.Push(Token(1)));
  EXPECT_EQ(queue.waiting(), 2u);
  queue.Discard();
  EXPECT_TRUE(queue.Push(Token(1)));
}

// gRPC ends its callback threads with the last channel: such a thread must not be the one to do it.
TEST(CallbackThreadsTest, TheLastChannelMayGoInsideACallback) {
  for (int round = 0; round < 20; ++round) {
    Mailbox<absl::Status> done;
    auto call = ServerStreamCall<Tokens>::Create(
        {.on_message = [](Tokens&&) {}, .on_done = [&](absl::Status status) { done.Put(status); }});
    const v1::DecodeGenerateRequest request;
    call->Start([&](auto* context, auto* reactor) {
      v1::Decode::NewStub(MakeChannel("127.0.0.1:1", ChannelKind::kBulk))
          ->async()
          ->Generate(context, &request, reactor);
    });
    call.reset();
    EXPECT_THAT(done.Next(), StatusIs(absl::StatusCode::kUnavailable));
  }
}

class StreamTest : public ::testing::Test {
 protected:
  StreamTest() {
    decode_.generate = [this](auto*, auto*) {
      auto writer = Writer::Create(1 << 10, [this](absl::Status status) { Done(status); });
      writers_.Put(writer);
      return writer->reactor();
    };
    prefill_.run = [this](auto*) {
      auto call = ServerBidi::Create(
          1 << 10, {.on_message = [this](Request&& request) { OnRequest(std::move(request)); },
                    .on_half_close = [this] { half_closes_.Put(true); },
                    .on_done = [this](absl::Status status) { Done(status); }});
      server_calls_.Put(call);
      return call->reactor();
    };
    server_ = StartServer({&decode_, &prefill_});
    channel_ = MakeChannel(AddressOf(*server_), ChannelKind::kControl);
    decode_stub_ = v1::Decode::NewStub(channel_);
    prefill_stub_ = v1::Prefill::NewStub(channel_);
  }

  void Done(const absl::Status& status) { server_done_.Put(status); }

  std::shared_ptr<ServerStreamCall<Tokens>> Generate(
      std::chrono::nanoseconds timeout = 10min,
      std::function<void(Tokens&&)> on_message = nullptr) {
    if (!on_message) on_message = [this](Tokens&& tokens) { tokens_.Put(tokens.token_ids(0)); };
    auto call = ServerStreamCall<Tokens>::Create(
        {.on_message = std::move(on_message),
         .on_done = [this](absl::Status status) { client_done_.Put(status); }});
    SetTimeout(call->context(), timeout);
    StartGenerate(*call);
    return call;
  }

  void StartGenerate(ServerStreamCall<Tokens>& call) {
    const v1::DecodeGenerateRequest request;
    call.Start([&](auto* context, auto* reactor) {
      decode_stub_->async()->Generate(context, &request, reactor);
    });
  }

  std::shared_ptr<ClientBidi> NewBidi(size_t max_queued = 1 << 10) {
    return ClientBidi::Create(
        max_queued, {.on_message =
                         [this](Response&& response) {
                           tokens_.Put(static_cast<int32_t>(response.finished().first_token_id()));
                         },
                     .on_done = [this](absl::Status status) { client_done_.Put(status); }});
  }

  void StartRun(ClientBidi& call) {
    call.Start(
        [&](auto* context, auto* reactor) { prefill_stub_->async()->Run(context, reactor); });
  }

  virtual void OnRequest(Request&& request) { requests_.Put(request.open().semantics_hash()); }

  FakeDecode decode_;
  FakePrefill prefill_;
  Mailbox<std::shared_ptr<Writer>> writers_;
  Mailbox<std::shared_ptr<ServerBidi>> server_calls_;
  Mailbox<absl::Status> server_done_, client_done_;
  Mailbox<int32_t> tokens_;
  Mailbox<uint64_t> requests_;
  Mailbox<bool> half_closes_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Decode::Stub> decode_stub_;
  std::unique_ptr<v1::Prefill::Stub> prefill_stub_;
  std::unique_ptr<GrpcServer> server_;  // first to go: its calls use the above
};

TEST_F(StreamTest, MessagesArriveInOrderBeforeTheStatus) {
  Generate();
  const auto writer = writers_.Next();
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(writer->Write(Token(i)));
  writer->Finish(absl::OkStatus());
  EXPECT_THAT(client_done_.Next(), IsOk());
  EXPECT_THAT(server_done_.Next(), IsOk());
  for (int i = 0; i < 100; ++i) EXPECT_EQ(tokens_.Next(), i);
}

TEST_F(StreamTest, NothingIsWrittenAfterFinishAndTheFirstEndCounts) {
  Generate();
  const auto writer = writers_.Next();
  writer->Finish(absl::NotFoundError("first"));
  EXPECT_FALSE(writer->Write(Token(1)));
  writer->Finish(absl::InternalError("second"));
  EXPECT_THAT(client_done_.Next(), StatusIs(absl::StatusCode::kNotFound, "first"));
  EXPECT_THAT(server_done_.Next(), StatusIs(absl::StatusCode::kNotFound, "first"));
  EXPECT_TRUE(tokens_.empty());
}

TEST_F(StreamTest, AnErrorCarriesItsFailureDetail) {
  Generate();
  absl::Status status = absl::UnavailableError("prefill worker is gone");
  v1::FailureDetail detail;
  detail.set_leg(v1::FailureDetail::LEG_PREFILL);
  AttachFailureDetail(detail, status);
  writers_.Next()->Finish(status);
  EXPECT_EQ(client_done_.Next(), status);
}

TEST_F(StreamTest, AMethodMayFinishBeforeItReturns) {
  decode_.generate = [this](auto*, auto*) {
    auto writer = Writer::Create(4, [this](absl::Status status) { Done(status); });
    EXPECT_TRUE(writer->Write(Token(7)));
    writer->Finish(absl::OutOfRangeError("too long"));
    return writer->reactor();
  };
  Generate();
  EXPECT_THAT(client_done_.Next(), StatusIs(absl::StatusCode::kOutOfRange, "too long"));
  EXPECT_EQ(tokens_.Next(), 7);
  EXPECT_THAT(server_done_.Next(), StatusIs(absl::StatusCode::kOutOfRange));
}

TEST_F(StreamTest, CancellingReachesTheServerAndEndsItsCall) {
  const auto call = Generate();
  const auto writer = writers_.Next();
  EXPECT_TRUE(writer->Write(Token(1)));
  EXPECT_EQ(tokens_.Next(), 1);
  call->Cancel();
  EXPECT_THAT(client_done_.Next(), StatusIs(kCancelled));
  EXPECT_THAT(server_done_.Next(), StatusIs(kCancelled));
  EXPECT_FALSE(writer->Write(Token(2)));
  writer->Finish(absl::OkStatus());
  call->Cancel();
}

TEST_F(StreamTest, CancellingBeforeTheStartEndsTheCall) {
  auto call = ServerStreamCall<Tokens>::Create(
      {.on_message = [](Tokens&&) {},
       .on_done = [this](absl::Status status) { client_done_.Put(status); }});
  call->Cancel();
  StartGenerate(*call);
  EXPECT_THAT(client_done_.Next(), StatusIs(kCancelled));
}

TEST_F(StreamTest, ADeadlineEndsBothSides) {
  Generate(50ms);
  EXPECT_THAT(client_done_.Next(), StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_THAT(server_done_.Next(), StatusIs(kCancelled));
}

TEST_F(StreamTest, DroppingThePointersEndsNothing) {
  Generate().reset();
  auto writer = writers_.Next();
  EXPECT_TRUE(writer->Write(Token(3)));
  writer->Finish(absl::OkStatus());
  writer.reset();
  EXPECT_THAT(client_done_.Next(), IsOk());
  EXPECT_EQ(tokens_.Next(), 3);
}

TEST_F(StreamTest, AReaderThatIsTooSlowEndsTheCallInsteadOfBlockingTheWriter) {
  decode_.generate = [this](auto*, auto*) {
    auto writer = Writer::Create(2, [this](absl::Status status) { Done(status); });
    writers_.Put(writer);
    return writer->reactor();
  };
  Mailbox<bool> go_on;
  Generate(10min, [&, first = true](Tokens&&) mutable {
    if (std::exchange(first, false)) go_on.Next();
  });
  const auto writer = writers_.Next();
  while (writer->Write(ManyTokens())) {
  }
  EXPECT_FALSE(writer->Write(Token(1)));
  go_on.Put(true);
  EXPECT_THAT(client_done_.Next(), StatusIs(kExhausted, HasSubstr("2 messages wait")));
  EXPECT_THAT(server_done_.Next(), StatusIs(kExhausted));
}

TEST_F(StreamTest, AnUnreachableServerIsUnavailable) {
  const std::string address = AddressOf(*server_);
  server_.reset();
  Generate();
  EXPECT_THAT(client_done_.Next(), StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(StreamTest, ShutdownCancelsWhatOutlivesTheGrace) {
  Generate();
  const auto writer = writers_.Next();
  server_->Shutdown(10ms);
  EXPECT_THAT(server_done_.Next(), StatusIs(kCancelled));
  EXPECT_THAT(client_done_.Next(),
              AnyOf(StatusIs(absl::StatusCode::kUnavailable), StatusIs(kCancelled)));
}

TEST_F(StreamTest, CallbacksAreDestroyedAfterTheEnd) {
  Mailbox<bool> released;
  struct Releaser {
    Mailbox<bool>* mailbox;
    ~Releaser() { mailbox->Put(true); }
  };
  const auto releaser = [&] { return std::make_shared<Releaser>(&released); };
  prefill_.run = [&](auto*) {
    auto call = ServerBidi::Create(4, {.on_message = [last = releaser()](Request&&) {},
                                       .on_done = [last = releaser()](absl::Status) {}});
    server_calls_.Put(call);
    return call->reactor();
  };
  auto call = ClientBidi::Create(4, {.on_message = [last = releaser()](Response&&) {},
                                     .on_done = [last = releaser()](absl::Status) {}});
  StartRun(*call);
  const auto server_call = server_calls_.Next();
  server_call->Finish(absl::OkStatus());
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(released.Next());
}

TEST_F(StreamTest, BidiCarriesMessagesBothWaysUntilBothEnd) {
  const auto call = NewBidi();
  EXPECT_TRUE(call->Write(OpenOf(1)));  // before the start: sent first
  StartRun(*call);
  const auto server_call = server_calls_.Next();
  for (uint64_t i = 2; i < 50; ++i) EXPECT_TRUE(call->Write(OpenOf(i)));
  for (int i = 0; i < 50; ++i) {
    Response response;
    response.mutable_finished()->set_first_token_id(i);
    EXPECT_TRUE(server_call->Write(std::move(response)));
  }
  call->HalfClose();
  EXPECT_FALSE(call->Write(OpenOf(99)));
  EXPECT_TRUE(half_closes_.Next());
  server_call->Finish(absl::OkStatus());
  EXPECT_THAT(client_done_.Next(), IsOk());
  EXPECT_THAT(server_done_.Next(), IsOk());
  for (uint64_t i = 1; i < 50; ++i) EXPECT_EQ(requests_.Next(), i);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(tokens_.Next(), i);
  EXPECT_FALSE(call->Write(OpenOf(99)));
}

TEST_F(StreamTest, AServerThatEndsEarlyEndsTheClientsCall) {
  const auto call = NewBidi();
  StartRun(*call);
  const auto server_call = server_calls_.Next();
  server_call->Finish(absl::FailedPreconditionError("other model"));
  EXPECT_THAT(client_done_.Next(), StatusIs(absl::StatusCode::kFailedPrecondition, "other model"));
  EXPECT_THAT(server_done_.Next(), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_FALSE(call->Write(OpenOf(1)));
  call->HalfClose();
  call->Cancel();
}

TEST_F(StreamTest, CancellingABidiCallReachesTheServer) {
  const auto call = NewBidi();
  StartRun(*call);
  server_calls_.Next();
  call->Cancel();
  EXPECT_FALSE(call->Write(OpenOf(1)));
  EXPECT_THAT(client_done_.Next(), StatusIs(kCancelled));
  EXPECT_THAT(server_done_.Next(), StatusIs(kCancelled));
}

TEST_F(StreamTest, AServerThatReadsTooSlowlyEndsTheCallInsteadOfBlockingTheWriter) {
  Mailbox<bool> go_on;
  prefill_.run = [&](auto*) {
    auto call = ServerBidi::Create(4, {.on_message = [&](Request&&) { go_on.Next(); },
                                       .on_done = [this](absl::Status status) { Done(status); }});
    server_calls_.Put(call);
    return call->reactor();
  };
  const auto call = NewBidi(2);
  StartRun(*call);
  server_calls_.Next();
  Request large;
  for (int i = 0; i < 64 << 10; ++i) large.mutable_open()->add_prompt_tokens(1 << 28);
  while (call->Write(large)) {
  }
  EXPECT_THAT(client_done_.Next(), StatusIs(kExhausted, HasSubstr("2 messages wait")));
  for (int i = 0; i < 100; ++i) go_on.Put(true);
  EXPECT_THAT(server_done_.Next(), StatusIs(kCancelled));
}

// Answers every request from the callback that received it, as a service would.
TEST_F(StreamTest, CallbacksMayWriteAndFinish) {
  prefill_.run = [this](auto*) {
    auto slot = std::make_shared<std::weak_ptr<ServerBidi>>();
    auto call =
        ServerBidi::Create(4, {.on_message =
                                   [slot](Request&& request) {
                                     Response response;
                                     response.mutable_finished()->set_first_token_id(
                                         static_cast<int32_t>(request.open().semantics_hash()));
                                     const auto self = slot->lock();
                                     EXPECT_TRUE(self->Write(std::move(response)));
                                     self->Finish(absl::OkStatus());
                                   },
                               .on_done = [this](absl::Status status) { Done(status); }});
    *slot = call;
    return call->reactor();
  };
  const auto call = NewBidi();
  StartRun(*call);
  call->Write(OpenOf(5));
  EXPECT_EQ(tokens_.Next(), 5);
  EXPECT_THAT(client_done_.Next(), IsOk());
  EXPECT_THAT(server_done_.Next(), IsOk());
}

// Writes, the end and the cancellation of one call race on three threads; whoever wins, each side
// hears of the end exactly once.
TEST_F(StreamTest, CancelMayRaceWithWritesAndTheEnd) {
  constexpr int kRounds = 150;
  for (int round = 0; round < kRounds; ++round) {
    const auto call = NewBidi();
    StartRun(*call);
    const auto server_call = server_calls_.Next();
    std::jthread server([&] {
      for (int i = 0; i < round % 8; ++i) server_call->Write(Response());
      server_call->Finish(absl::OkStatus());
    });
    std::jthread client([&] {
      for (int i = 0; i < round % 8; ++i) call->Write(OpenOf(1));
      call->HalfClose();
    });
    call->Cancel();
    server.join();
    client.join();
    EXPECT_THAT(client_done_.Next(), AnyOf(IsOk(), StatusIs(kCancelled)));
    EXPECT_THAT(server_done_.Next(), AnyOf(IsOk(), StatusIs(kCancelled)));
  }
  server_.reset();
  EXPECT_TRUE(client_done_.empty());
  EXPECT_TRUE(server_done_.empty());
}

}  // namespace
}  // namespace baton::rpc
