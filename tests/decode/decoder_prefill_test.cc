#include "tests/decode/decoder_fixture.h"

// Prefill workers that refuse, fall silent or do not end, and what each is told.

namespace baton::decode {
namespace {

using ::baton::testing::IsOk;
using ::baton::testing::StatusIs;
using ::testing::HasSubstr;

using DecoderPrefillTest = DecoderFixture;

TEST_F(DecoderPrefillTest, RefusalsGoDownTheListAndTheLastOneCounts) {
  Submit({{"p:1", 1}, {"p:2", 2}});
  EXPECT_EQ(client_.call(0)->peer.address, "p:1");
  client_.call(0)->End(absl::ResourceExhaustedError("queue is full"));
  ASSERT_NE(client_.call(1), nullptr);
  EXPECT_EQ(client_.call(1)->peer.address, "p:2");
  client_.call(1)->End(absl::UnavailableError("connection refused"));
  EXPECT_THAT(stream_->Wait(), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(stream_->leg(), Leg::kPrefill);
  EXPECT_EQ(stream_->peer(), "p:2");
}

TEST_F(DecoderPrefillTest, APromptTooLongForOnePrefillWorkerMayFitTheNext) {
  Submit({{"p:1", 1}, {"p:2", 2}});
  client_.call(0)->End(absl::OutOfRangeError("100 tokens exceed the 64 here"));
  ASSERT_NE(client_.call(1), nullptr);
  EXPECT_EQ(client_.call(1)->peer.address, "p:2");
}

TEST_F(DecoderPrefillTest, ARequestThatIsItselfAtFaultIsAskedOfNobodyElse) {
  Submit({{"p:1", 1}, {"p:2", 2}});
  client_.call(0)->End(absl::InvalidArgumentError("top_p is 7"));
  EXPECT_THAT(stream_->Wait(), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(client_.calls(), 1u);
}

TEST_F(DecoderPrefillTest, APrefillWorkerThatDoesNotAnswerIsLeftForTheNext) {
  Submit({{"p:1", 1}, {"p:2", 2}});
  const auto silent = client_.call(0);
  clock_.Advance(std::chrono::seconds(6));
  decoder_->Tick();
  ASSERT_NE(client_.call(1), nullptr);
  WaitFor([&] { return silent->cancelled.load(); });
  // What it says now means nothing.
  silent->events.on_accepted(1);
  silent->events.on_started();
  const auto call = client_.call(1);
  call->events.on_accepted(2);
  call->events.on_started();
  WaitFor([&] { return call->granted.load(); });
  EXPECT_FALSE(silent->granted);
}

TEST_F(DecoderPrefillTest, AStuckPrefillWorkerFillsItsQuotaOnly) {
  for (int i = 0; i < 3; ++i) Submit({{"p:1", 1}, {"p:2", 2}});
  ASSERT_NE(client_.call(2), nullptr);
  EXPECT_EQ(client_.call(0)->peer.address, "p:1");
  EXPECT_EQ(client_.call(1)->peer.address, "p:1");
  EXPECT_EQ(client_.call(2)->peer.address, "p:2");
  Submit({{"p:1", 1}});
  EXPECT_THAT(stream_->Wait(), StatusIs(absl::StatusCode::kResourceExhausted));
}

TEST_F(DecoderPrefillTest, AFirstTokenOutsideTheVocabularyIsThePrefillWorkersFault) {
  const auto call = Land();
  call->events.on_finished({.first_token = 1 << 20});
  EXPECT_THAT(stream_->Wait(), StatusIs(absl::StatusCode::kInternal, HasSubstr("vocabulary")));
  EXPECT_EQ(stream_->leg(), Leg::kPrefill);
}

TEST_F(DecoderPrefillTest, TheFirstTokenIsTheOneThatWasSaidFirst) {
  const auto call = Land();
  call->events.on_finished({.first_token = 42});
  call->events.on_finished({.first_token = 1 << 20});
  receiver_.EndLanding(absl::OkStatus());
  EXPECT_THAT(stream_->Wait(), IsOk());
  EXPECT_EQ(stream_->tokens().at(0), 42);
}

TEST_F(DecoderPrefillTest, TheFirstTokenOfOneThatWasLeftCountsForNothing) {
  Submit({{"p:1", 1}, {"p:2", 2}});
  client_.call(0)->events.on_finished({.first_token = 41});
  clock_.Advance(std::chrono::seconds(6));
  decoder_->Tick();
  const auto call = client_.call(1);
  ASSERT_NE(call, nullptr);
  call->events.on_accepted(2);
  call->events.on_started();
  WaitFor([&] { return call->granted.load(); });
  EXPECT_FALSE(client_.call(0)->granted);
  receiver_.EndLanding(absl::OkStatus());
  call->events.on_finished({.first_token = 42});
  EXPECT_THAT(stream_->Wait(), IsOk());
  EXPECT_EQ(stream_->tokens().at(0), 42);
}

TEST_F(DecoderPrefillTest, LogprobsOfTheFirstTokenComeFromThePrefillWorker) {
  const auto call = Land({.peers = {{"p:1", 1}}, .top_logprobs = 1});
  EXPECT_EQ(call->open.sampling.top_logprobs, 1);
  const TokenLogprobs first{.chosen = {.token = 42, .logprob = -3},
                            .top = {{.token = 7, .logprob = -1}}};
  call->events.on_finished({.first_token = 42, .logprobs = first});
  receiver_.EndLanding(absl::OkStatus());
  EXPECT_THAT(stream_->Wait(), IsOk());
  const std::vector<TokenLogprobs> logprobs = stream_->logprobs();
  ASSERT_EQ(logprobs.size(), 3u);
  EXPECT_EQ(logprobs[0], first);
  for (size_t i = 1; i < 3; ++i) EXPECT_EQ(logprobs[i].chosen.token, stream_->tokens()[i]);
}

TEST_F(DecoderPrefillTest, LogprobsThatAreMissingAreThePrefillWorkersFault) {
  const auto call = Land({.peers = {{"p:1", 1}}, .top_logprobs = 1});
  call->events.on_finished({.first_token = 42});
  EXPECT_THAT(stream_->Wait(),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("log-probabilities")));
  EXPECT_EQ(stream_->leg(), Leg::kPrefill);
}

TEST_F(DecoderPrefillTest, APrefillWorkerThatStandsStillIsGivenUp) {
  Land();
  clock_.Advance(std::chrono::seconds(90));
  receiver_.bytes = 1000;
  decoder_->Tick();  // a chunk has come
  clock_.Advance(std::chrono::seconds(90));
  decoder_->Tick();
  clock_.Advance(std::chrono::seconds(20));
  decoder_->Tick();
  EXPECT_THAT(stream_->Wait(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("prefill made no progress")));
  EXPECT_EQ(stream_->leg(), Leg::kPrefill);
  EXPECT_EQ(stream_->peer(), "p:1");
}

TEST_F(DecoderPrefillTest, WhatIsLeftOfTheDeadlineGoesToThePrefillWorker) {
  Ask({.peers = {{"p:1", 1}, {"p:2", 2}}, .timeout = std::chrono::seconds(20)});
  const Clock::Duration first = *client_.call(0)->open.timeout;
  clock_.Advance(std::chrono::seconds(3));
  client_.call(0)->End(absl::UnavailableError("connection refused"));
  ASSERT_NE(client_.call(1), nullptr);
  EXPECT_GE(first, std::chrono::seconds(20));
  EXPECT_EQ(first - *client_.call(1)->open.timeout, std::chrono::seconds(3));
}

TEST_F(DecoderPrefillTest, WithoutADeadlineThePrefillWorkerHasNoneEither) {
  Submit({{"p:1", 1}});
  EXPECT_EQ(client_.call(0)->open.timeout, std::nullopt);
}

// The request is served, but its call would keep the gate shut for ever.
TEST_F(DecoderPrefillTest, APrefillWorkerThatDoesNotEndACompleteHandOffIsCutOff) {
  const auto call = Land();
  call->events.on_finished({.first_token = 42});
  receiver_.EndLanding(absl::OkStatus());
  EXPECT_THAT(stream_->Wait(), IsOk());
  EXPECT_FALSE(decoder_->Drain(std::chrono::milliseconds(1)));
  decoder_->Tick();
  clock_.Advance(std::chrono::seconds(11));
  EXPECT_FALSE(call->cancelled);
  decoder_->Tick();
  EXPECT_TRUE(decoder_->Drain(kPatience));
  EXPECT_TRUE(call->cancelled);
}

TEST_F(DecoderPrefillTest, StopCutsOffAPrefillWorkerThatDoesNotEndACompleteHandOff) {
  const auto call = Land();
  call->events.on_finished({.first_token = 42});
  receiver_.EndLanding(absl::OkStatus());
  EXPECT_THAT(stream_->Wait(), IsOk());
  decoder_->Stop(absl::UnavailableError("shuts down"));
  EXPECT_TRUE(call->cancelled);
}

TEST_F(DecoderPrefillTest, ACallThatHasEndedIsForgotten) {
  const auto call = Land();
  call->events.on_finished({.first_token = 42});
  call->End(absl::OkStatus());
  WaitFor([&] { return receiver_.aborted(); });
  receiver_.EndLanding(absl::OkStatus());
  EXPECT_THAT(stream_->Wait(), IsOk());
  clock_.Advance(std::chrono::seconds(1));
  decoder_->Tick();
  clock_.Advance(std::chrono::seconds(11));
  decoder_->Tick();
  EXPECT_TRUE(decoder_->Drain(kPatience));
  EXPECT_FALSE(call->cancelled);
}

}  // namespace
}  // namespace baton::decode
