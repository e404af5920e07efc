#include "common/base/check.h"
#include "common/rpc/request_protocol.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "router/dispatch/generation_service.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/status_matchers.h"

namespace baton::router {
namespace {

using baton::testing::FakeClock;
using baton::testing::IsOk;
using baton::testing::StatusIs;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

// Calls that were made, for the test to play the worker's part.
class ScriptedClient final : public DecodeClient {
 public:
  struct Made : DecodeCall {
    void Cancel() override { cancelled = true; }
    void Finish() override { finished = true; }
    std::string target;
    DecodeAttempt attempt;
    std::shared_ptr<DecodeCallHandler> handler;
    bool cancelled = false;
    bool finished = false;

    void Say(std::vector<int32_t> ids, uint32_t completion_tokens,
             FinishReason reason = FinishReason::kNone,
             std::optional<HandoffFigures> handoff = std::nullopt) {
      handler->OnDecodeMessage(
          attempt.id.attempt,
          {.token_ids = std::move(ids),
           .usage = {.prompt_tokens = static_cast<uint32_t>(attempt.prompt_tokens->size()),
                     .completion_tokens = completion_tokens},
           .finish_reason = reason,
           .handoff = std::move(handoff)});
    }
    void End(absl::Status status, std::optional<AttemptFailure::Detail> detail = std::nullopt) {
      handler->OnDecodeEnd(attempt.id.attempt, {.status = std::move(status), .detail = detail});
    }
  };

  std::shared_ptr<DecodeCall> Generate(const std::string& target, DecodeAttempt attempt,
                                       std::shared_ptr<DecodeCallHandler> handler) override {
    auto call = std::make_shared<Made>();
    call->target = target;
    call->attempt = std::move(attempt);
    call->handler = std::move(handler);
    calls.push_back(call);
    return call;
  }

  std::vector<std::shared_ptr<Made>> calls;
};

class RecordingSink final : public GenerationSink {
 public:
  void OnDelta(GenerationDelta delta) override { deltas.push_back(std::move(delta)); }
  void OnEnd(GenerationDelta whole, const GenerationEnd& how) override {
    ++ends;
    all = std::move(whole);
    end = how;
  }

  std::vector<GenerationDelta> deltas;
  GenerationDelta all;
  GenerationEnd end;
  int ends = 0;
};

class GenerationTest : public ::testing::Test {
 protected:
  GenerationTest() {
    registry_.SetMembers({{.role = WorkerRole::kPrefill, .target = "p0"},
                          {.role = WorkerRole::kPrefill, .target = "p1"},
                          {.role = WorkerRole::kDecode, .target = "d0"},
                          {.role = WorkerRole::kDecode, .target = "d1"}});
    for (WorkerKey key = 0; key < 4; ++key) Report(key, 1);
    environment_.registry = &registry_;
    environment_.scorer = scorer_.get();
    environment_.decode = &client_;
    environment_.metrics = &router_metrics_;
    environment_.clock = &clock_;
  }
  ~GenerationTest() override { service_.CancelAll(absl::CancelledError("test ends")); }

  static const ServedModel& Model() {
    static const ServedModel* model =
        new ServedModel(*ServedModel::Load(BATON_SOURCE_DIR "/models/needle-17m", ""));
    return *model;
  }

  void Report(WorkerKey key, Incarnation incarnation, bool ready = true) {
    WorkerReport report;
    report.role = key < 2 ? WorkerRole::kPrefill : WorkerRole::kDecode;
    report.self.incarnation = incarnation;
    report.max_context_tokens = 100;
    report.request_protocol = rpc::kRequestProtocol;
    report.ready = ready;
    registry_.OnReport(key, report, {});
  }

  static GenerationRequest Request(bool stream) {
    GenerationRequest request;
    request.id = RequestId::Random();
    request.endpoint = Endpoint::kCompletions;
    request.input = std::vector<int32_t>{50, 51, 52};
    request.stream = stream;
    return request;
  }

  void Start(GenerationRequest request) {
    BATON_ASSERT_OK_AND_ASSIGN(generation_, service_.Start(std::move(request), sink_));
  }

  static int32_t Token(const std::string& text) {
    const std::vector<int32_t> ids = Model().tokenizer.Encode(text);
    BATON_CHECK(ids.size() == 1) << text;
    return ids[0];
  }

  ScriptedClient::Made& Call(size_t index) {
    BATON_CHECK(index < client_.calls.size());
    return *client_.calls[index];
  }

  FakeClock clock_;
  Metrics metrics_{"router"};
  RouterMetrics router_metrics_{metrics_, "round-robin"};
  std::unique_ptr<Scorer> scorer_ = *MakeScorer("round-robin");
  Registry registry_{{.prefill_is_split = true}};
  ScriptedClient client_;
  GenerationEnvironment environment_;
  GenerationService service_{
      &Model(), &environment_, {.max_concurrent_requests = 2, .request_timeout = seconds(60)}};
  std::shared_ptr<RecordingSink> sink_ = std::make_shared<RecordingSink>();
  std::shared_ptr<Generation> generation_;
};

TEST_F(GenerationTest, StreamsTextAsItComesAndEndsOnce) {
  Start(Request(/*stream=*/true));
  clock_.Advance(milliseconds(30));
  Call(0).Say({Token("The")}, 1);
  Call(0).Say({Token(" ")}, 2, FinishReason::kLength, HandoffFigures{.prefill_address = "p0"});
  Call(0).End(absl::OkStatus());
  ASSERT_THAT(sink_->deltas, SizeIs(2));
  EXPECT_EQ(sink_->deltas[0].text, "The");
  EXPECT_THAT(sink_->deltas[0].token_ids, ElementsAre(Token("The")));
  EXPECT_EQ(sink_->deltas[1].usage, (Usage{.prompt_tokens = 3, .completion_tokens = 2}));
  EXPECT_EQ(sink_->ends, 1);
  EXPECT_THAT(sink_->end.status, IsOk());
  EXPECT_EQ(sink_->end.finish_reason, FinishReason::kLength);
  EXPECT_EQ(sink_->end.attempts, 1u);
  EXPECT_EQ(sink_->end.handoff.prefill_address, "p0");
  EXPECT_EQ(sink_->end.time_to_first_token, milliseconds(30));
  EXPECT_THAT(sink_->all.text, IsEmpty());
}

TEST_F(GenerationTest, AChoiceThatStartsLateIsNotWaitedForBefore) {
  const auto other = std::make_shared<RecordingSink>();
  BATON_ASSERT_OK_AND_ASSIGN(const auto generations,
                             service_.Prepare(Request(/*stream=*/true), {sink_, other}));
  generations[0]->Start();
  clock_.Advance(milliseconds(30));
  Call(0).Say({Token("The")}, 1, FinishReason::kLength);
  generations[1]->Start();
  clock_.Advance(milliseconds(4));
  Call(1).Say({Token("The")}, 1, FinishReason::kLength);
  for (const auto& call : client_.calls) call->End(absl::OkStatus());
  EXPECT_EQ(sink_->end.time_to_first_token, milliseconds(30));
  EXPECT_EQ(other->end.time_to_first_token, milliseconds(4));
}

TEST_F(GenerationTest, WithoutStreamingAllTextComesWithTheEnd) {
  Start(Request(/*stream=*/false));
  Call(0).Say({Token("The")}, 1);
  Call(0).Say({Token(".")}, 2, FinishReason::kStop);
  Call(0).End(absl::OkStatus());
  EXPECT_THAT(sink_->deltas, IsEmpty());
  EXPECT_EQ(sink_->all.text, "The.");
  EXPECT_EQ(sink_->end.usage.completion_tokens, 2u);
}

TEST_F(GenerationTest, TellsTheDecodeWorkerEverythingItNeeds) {
  GenerationRequest request = Request(true);
  request.sampling.temperature = 0.0f;
  request.sampling.seed = 99;
  Start(request);
  const DecodeAttempt& attempt = Call(0).attempt;
  EXPECT_EQ(attempt.id.request, request.id);
  EXPECT_EQ(attempt.id.attempt, 1u);
  EXPECT_THAT(*attempt.prompt_tokens, ElementsAre(50, 51, 52));
  EXPECT_EQ(attempt.sampling.temperature, 0);
  EXPECT_EQ(attempt.sampling.seed, 99u);
  EXPECT_EQ(attempt.sampling.max_tokens, 97u);  // what the context leaves
  EXPECT_EQ(attempt.timeout, seconds(60));
  EXPECT_THAT(attempt.prefill_workers, ElementsAre(WorkerId{"p0", 1}, WorkerId{"p1", 1}));
}

TEST_F(GenerationTest, EveryAttemptHasTheSameSeedAlsoWhenTheClientGaveNone) {
  Start(Request(false));
  Call(0).End(absl::UnavailableError("gone"));
  ASSERT_THAT(client_.calls, SizeIs(2));
  EXPECT_NE(Call(0).attempt.sampling.seed, 0u);
  EXPECT_EQ(Call(0).attempt.sampling.seed, Call(1).attempt.sampling.seed);
}

TEST_F(GenerationTest, ACrashedWorkerIsReplacedByAnotherWithANewAttemptNumber) {
  Start(Request(true));
  Call(0).End(absl::UnavailableError("gone"));
  ASSERT_THAT(client_.calls, SizeIs(2));
  EXPECT_NE(Call(0).target, Call(1).target);
  EXPECT_EQ(Call(1).attempt.id.attempt, 2u);
  EXPECT_EQ(Call(1).attempt.id.request, Call(0).attempt.id.request);
  Call(1).Say({Token("The")}, 1, FinishReason::kStop);
  Call(1).End(absl::OkStatus());
  EXPECT_THAT(sink_->end.status, IsOk());
  EXPECT_EQ(sink_->end.attempts, 2u);
  EXPECT_GT(registry_.Current()->workers[2].cooling_until, clock_.Now());
}

TEST_F(GenerationTest, MessagesOfAnOldAttemptChangeNothing) {
  Start(Request(false));
  Call(0).Say({Token("The")}, 1);
  Call(0).End(absl::UnavailableError("gone"));
  Call(0).Say({Token("The")}, 1);
  Call(1).Say({Token(".")}, 1, FinishReason::kStop);
  Call(0).End(absl::UnavailableError("gone again"));
  Call(1).End(absl::OkStatus());
  EXPECT_EQ(sink_->all.text, ".");
  EXPECT_THAT(client_.calls, SizeIs(2));
}

TEST_F(GenerationTest, OutputThatTheClientHasNotSeenIsThrownAwayAndMadeAgain) {
  Start(Request(/*stream=*/false));
  Call(0).Say({Token("The"), Token(".")}, 2);
  Call(0).End(absl::UnavailableError("gone"));
  ASSERT_THAT(client_.calls, SizeIs(2));
  Call(1).Say({Token("The")}, 1, FinishReason::kStop);
  Call(1).End(absl::OkStatus());
  EXPECT_EQ(sink_->all.text, "The");
  EXPECT_EQ(sink_->end.usage.completion_tokens, 1u);
}

TEST_F(GenerationTest, AStreamThatHasBegunFailsInsteadOfStartingOver) {
  Start(Request(/*stream=*/true));
  Call(0).Say({Token("The")}, 1);
  Call(0).End(absl::UnavailableError("gone"));
  EXPECT_THAT(client_.calls, SizeIs(1));
  EXPECT_EQ(sink_->ends, 1);
  EXPECT_THAT(sink_->end.status, StatusIs(absl::StatusCode::kUnavailable, HasSubstr("is gone")));
}

TEST_F(GenerationTest, AStreamWithoutVisibleTextYetCanStartOver) {
  Start(Request(/*stream=*/true));
  Call(0).Say({Model().markup.bos}, 1);  // a token that shows nothing
  Call(0).End(absl::UnavailableError("gone"));
  EXPECT_THAT(client_.calls, SizeIs(2));
}

TEST_F(GenerationTest, EverythingSaidBeforeTheStreamBrokeIsASuccess) {
  Start(Request(true));
  Call(0).Say({Token("The")}, 1, FinishReason::kStop);
  Call(0).End(absl::UnavailableError("gone"));
  EXPECT_THAT(sink_->end.status, IsOk());
  EXPECT_EQ(sink_->end.finish_reason, FinishReason::kStop);
}

TEST_F(GenerationTest, AnEndWithoutAFinishReasonIsAnError) {
  Start(Request(true));
  Call(0).Say({Token("The")}, 1);
  Call(0).End(absl::OkStatus());
  EXPECT_THAT(sink_->end.status, StatusIs(absl::StatusCode::kInternal));
}

TEST_F(GenerationTest, AFailedPrefillWorkerIsAvoidedByTheNextAttempt) {
  Start(Request(true));
  Call(0).End(absl::UnavailableError("prefill gone"),
              AttemptFailure::Detail{.leg = FailedLeg::kPrefill, .peer = {"p0", 1}});
  ASSERT_THAT(client_.calls, SizeIs(2));
  EXPECT_THAT(Call(1).attempt.prefill_workers, ElementsAre(WorkerId{"p1", 1}));
  EXPECT_THAT(metrics_.Text(),
              HasSubstr("baton_retries_total{role=\"router\",leg=\"prefill\",reason=\"crash\"} 1"));
}

TEST_F(GenerationTest, APairThatFailedIsFollowedByASecondPair) {
  Start(Request(true));
  Call(0).End(absl::FailedPreconditionError("window_kv records: [1, 2), granted [2, 3)"),
              AttemptFailure::Detail{.leg = FailedLeg::kPrefill, .peer = {"p0", 1}});
  ASSERT_THAT(client_.calls, SizeIs(2));
  EXPECT_NE(Call(0).target, Call(1).target);
  EXPECT_THAT(Call(1).attempt.prefill_workers, ElementsAre(WorkerId{"p1", 1}));
}

TEST_F(GenerationTest, WithOneDecodeWorkerAnotherPrefillWorkerIsASecondPair) {
  Report(3, 1, /*ready=*/false);
  Start(Request(true));
  Call(0).End(absl::InternalError("ended too early"),
              AttemptFailure::Detail{.leg = FailedLeg::kPrefill, .peer = {"p0", 1}});
  ASSERT_THAT(client_.calls, SizeIs(2));
  EXPECT_EQ(Call(0).target, Call(1).target);
  EXPECT_THAT(Call(1).attempt.prefill_workers, ElementsAre(WorkerId{"p1", 1}));
}

TEST_F(GenerationTest, WorkersThatDoNotFitEachOtherAreNotTheClientsFault) {
  Report(1, 1, /*ready=*/false);
  Report(3, 1, /*ready=*/false);
  Start(Request(true));
  for (const size_t attempt : {0, 1}) {  // there is one pair only
    ASSERT_THAT(client_.calls, SizeIs(attempt + 1));
    Call(attempt).End(absl::FailedPreconditionError("kv dtype differs"),
                      AttemptFailure::Detail{.leg = FailedLeg::kPrefill, .peer = {"p0", 1}});
  }
  EXPECT_THAT(sink_->end.status,
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("d0 cannot work with prefill worker p0: kv dtype differs")));
}

TEST_F(GenerationTest, TheLastFailureIsReportedWhenNobodyIsLeftToTry) {
  Report(3, 1, /*ready=*/false);
  Start(Request(true));
  Call(0).End(absl::ResourceExhaustedError("decode queue is full"));
  EXPECT_THAT(client_.calls, SizeIs(1));
  EXPECT_THAT(sink_->end.status,
              StatusIs(absl::StatusCode::kResourceExhausted, "decode queue is full"));
  EXPECT_THAT(metrics_.Text(),
              Not(ContainsRegex("baton_retries_total[^\n]* 1\n")));  // none was made
}

TEST_F(GenerationTest, ADisturbedHandoffIsTriedAgainOnTheOnlyPairThereIs) {
  Report(1, 1, false);
  Report(3, 1, false);
  Start(Request(true));
  Call(0).End(absl::DataLossError("checksum"),
              AttemptFailure::Detail{.leg = FailedLeg::kTransfer, .peer = {"p0", 1}});
  ASSERT_THAT(client_.calls, SizeIs(2));
  EXPECT_EQ(Call(1).target, "d0");
}

TEST_F(GenerationTest, WithoutWorkersTheRequestIsUnavailable) {
  Report(2, 1, false);
  Report(3, 1, false);
  Start(Request(true));
  EXPECT_THAT(client_.calls, IsEmpty());
  EXPECT_THAT(sink_->end.status,
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("no decode worker")));
}

TEST_F(GenerationTest, ARequestLongerThanAnyContextIsOutOfRange) {
  GenerationRequest request = Request(true);
  request.sampling.max_tokens = 98;
  Start(request);
  EXPECT_THAT(sink_->end.status, StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("100")));
}

TEST_F(GenerationTest, AStopStringTellsTheWorkerThatItIsDoneAndCountsOnlyWhatIsShown) {
  GenerationRequest request = Request(true);
  request.stop = {"."};
  Start(request);
  Call(0).Say({Token("The"), Token("."), Token("The"), Token("The")}, 4, FinishReason::kNone,
              HandoffFigures{.prefill_address = "p0", .bytes = 1000});
  EXPECT_TRUE(Call(0).finished);
  EXPECT_FALSE(Call(0).cancelled);
  EXPECT_EQ(sink_->ends, 1);
  EXPECT_EQ(sink_->end.finish_reason, FinishReason::kStop);
  EXPECT_EQ(sink_->end.matched_stop, ".");
  EXPECT_EQ(sink_->end.usage.completion_tokens, 2u);
  EXPECT_EQ(sink_->end.handoff.prefill_address, "p0");
  EXPECT_EQ(sink_->end.handoff.bytes, 1000u);
  ASSERT_THAT(sink_->deltas, SizeIs(1));
  EXPECT_EQ(sink_->deltas[0].text, "The");
  Call(0).Say({Token("The")}, 5);
  Call(0).End(absl::OkStatus());
  EXPECT_EQ(sink_->ends, 1);
}

// It might have begun the stop string, and comes after the last token.
TEST_F(GenerationTest, TextThatWasHeldBackCountsAllTokensToo) {
  GenerationRequest request = Request(true);
  request.stop = {".x"};
  Start(request);
  Call(0).Say({Token("The"), Token(".")}, 2, FinishReason::kLength);
  Call(0).End(absl::OkStatus());
  ASSERT_THAT(sink_->deltas, SizeIs(2));
  EXPECT_EQ(sink_->deltas[1].text, ".");
  EXPECT_EQ(sink_->deltas[1].usage, (Usage{.prompt_tokens = 3, .completion_tokens = 2}));
}

TEST_F(GenerationTest, CancellingEndsTheCallAndTheRequestOnce) {
  Start(Request(true));
  generation_->Cancel(absl::CancelledError("client left"));
  EXPECT_TRUE(Call(0).cancelled);
  EXPECT_THAT(sink_->end.status, StatusIs(absl::StatusCode::kCancelled, "client left"));
  generation_->Cancel(absl::InternalError("again"));
  Call(0).Say({Token("The")}, 1);
  Call(0).End(absl::CancelledError("cancelled"));
  EXPECT_EQ(sink_->ends, 1);
  EXPECT_THAT(sink_->deltas, IsEmpty());
}

TEST_F(GenerationTest, OpenWorkIsCountedWhileItIsOpen) {
  const OpenWork& prefill = *registry_.Current()->workers[0].open;
  const OpenWork& decode = *registry_.Current()->workers[2].open;
  Start(Request(true));
  EXPECT_EQ(prefill.prompt_tokens, 3);
  EXPECT_EQ(decode.requests, 1);
  Call(0).Say({Token("The")}, 1);
  EXPECT_EQ(prefill.requests, 0);  // its part is over with the first token
  EXPECT_EQ(decode.requests, 1);
  Call(0).Say({Token("The")}, 2, FinishReason::kStop);
  Call(0).End(absl::OkStatus());
  EXPECT_EQ(decode.requests, 0);
  EXPECT_EQ(service_.running(), 0);
}

TEST_F(GenerationTest, AFullOrClosedServiceRefuses) {
  Start(Request(true));
  Start(Request(true));
  EXPECT_THAT(service_.Start(Request(true), sink_),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("full")));
  EXPECT_THAT(metrics_.Text(), HasSubstr("outcome=\"overload\"} 1\n"));
  service_.Close();
  EXPECT_FALSE(service_.WaitEmpty(milliseconds(0)));
  EXPECT_THAT(service_.Start(Request(true), sink_),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("shutting down")));
  service_.CancelAll(absl::UnavailableError("drained"));
  EXPECT_TRUE(service_.WaitEmpty(milliseconds(0)));
  EXPECT_THAT(sink_->end.status, StatusIs(absl::StatusCode::kUnavailable, "drained"));
}

TEST_F(GenerationTest, RefusesOtherModelsAndTokensOutsideTheVocabulary) {
  GenerationRequest request = Request(true);
  request.model = "gpt-5";
  EXPECT_THAT(service_.Start(request, sink_),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("gpt-5")));
  request = Request(true);
  request.input = std::vector<int32_t>{1, 1024};
  EXPECT_THAT(service_.Start(request, sink_),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("prompt[1] is 1024")));
  request.input = std::vector<int32_t>{};
  EXPECT_THAT(service_.Start(request, sink_),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("empty")));
  request = Request(true);
  request.sampling.stop_token_ids = {-1};
  EXPECT_THAT(service_.Start(request, sink_),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("stop_token_ids[0]")));
  EXPECT_EQ(service_.running(), 0);
}

TEST_F(GenerationTest, ToolsNeedThePromptTextsOfTheModel) {
  BATON_ASSERT_OK_AND_ASSIGN(ServedModel bare,
                             ServedModel::Load(BATON_SOURCE_DIR "/models/needle-17m", ""));
  bare.chat_prompts.reset();
  GenerationService service(&bare, &environment_, {});
  GenerationRequest request = Request(true);
  ChatInput chat{.messages = {TextMessage(Role::kUser, "hi")}};
  LeadingSystemMessage(&chat.messages).tools = {{{"name", "f"}}};
  request.input = chat;
  EXPECT_THAT(service.Start(request, sink_),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("chat_prompts.json"), HasSubstr("baton import-prompts"))));
}

TEST_F(GenerationTest, AChatIsRenderedAndItsReasoningToldApart) {
  GenerationRequest request = Request(/*stream=*/false);
  request.input = ChatInput{.messages = {TextMessage(Role::kUser, "The")}, .thinking = true};
  Start(request);
  const MarkupIds& markup = Model().markup;
  EXPECT_THAT(*Call(0).attempt.prompt_tokens, ElementsAre(markup.bos, markup.user, Token("The"),
                                                          markup.assistant, markup.think_start));
  Call(0).Say({Token("The"), markup.think_end, Token("."), markup.eos}, 4, FinishReason::kStop);
  Call(0).End(absl::OkStatus());
  EXPECT_EQ(sink_->all.reasoning, "The");
  EXPECT_EQ(sink_->all.text, ".");
}

}  // namespace
}  // namespace baton::router
