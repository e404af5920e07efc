#include "tests/decode/decoder_fixture.h"

// A request from its submission to its end, and the pages it holds meanwhile.

namespace baton::decode {
namespace {

using ::baton::testing::IsOk;
using ::baton::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::Key;

using DecoderTest = DecoderFixture;

TEST_F(DecoderTest, RunsOnceEveryByteAndTheFirstTokenAreThere) {
  const auto call = Land();
  call->events.on_finished({.first_token = 42});
  EXPECT_FALSE(call->received);
  receiver_.EndLanding(absl::OkStatus());
  EXPECT_THAT(stream_->Wait(), IsOk());
  EXPECT_TRUE(call->received);
  ASSERT_EQ(stream_->tokens().size(), 3u);
  EXPECT_EQ(stream_->tokens().front(), 42);
}

// An answer may be cut short after any token.
TEST_F(DecoderTest, TheFirstTokenSaysHowTheRequestWasServedAndSoDoesTheLast) {
  const auto call = Land();
  call->events.on_finished({.first_token = 42, .computed = std::chrono::milliseconds(5)});
  receiver_.EndLanding(absl::OkStatus());
  EXPECT_THAT(stream_->Wait(), IsOk());
  const std::map<uint32_t, ServedFigures> served = stream_->served();
  ASSERT_THAT(served, ::testing::UnorderedElementsAre(Key(1), Key(3)));
  for (const auto& [tokens, figures] : served) {
    EXPECT_EQ(figures.prefill.address, "p:1");
    EXPECT_GT(figures.handoff_bytes, 0);
    EXPECT_EQ(figures.prefill_time, std::chrono::milliseconds(5));
  }
}

TEST_F(DecoderTest, ADeadStreamIsSuccessOnceEverythingIsThere) {
  const auto call = Land();
  call->events.on_finished({.first_token = 42});
  client_.call(0)->End(absl::UnavailableError("socket closed"));
  WaitFor([&] { return receiver_.aborted(); });  // fenced first
  EXPECT_FALSE(stream_->ended());
  receiver_.EndLanding(absl::OkStatus());  // it had been complete
  EXPECT_THAT(stream_->Wait(), IsOk());
}

TEST_F(DecoderTest, ADeadStreamWithBytesMissingNamesThePrefillWorker) {
  const auto call = Land();
  client_.call(0)->End(absl::UnavailableError("socket closed"));
  WaitFor([&] { return receiver_.aborted(); });
  receiver_.EndLanding(absl::CancelledError("fenced"));
  EXPECT_THAT(stream_->Wait(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("socket closed")));
  EXPECT_EQ(stream_->leg(), Leg::kPrefill);
  EXPECT_EQ(stream_->peer(), "p:1");
}

TEST_F(DecoderTest, PagesStayInQuarantineUntilTheLandingHasEnded) {
  Land();
  decoder_->Cancel(1, absl::CancelledError("client left"));
  EXPECT_THAT(stream_->Wait(), StatusIs(absl::StatusCode::kCancelled));
  WaitFor([&] { return decoder_->load().cache.pages_quarantine == 1; });
  WaitFor([&] { return receiver_.aborted(); });
  EXPECT_EQ(decoder_->load().cache.pages_free, 7);
  receiver_.EndLanding(absl::CancelledError("fenced"));
  WaitFor([&] { return decoder_->load().cache.pages_free == 8; });
}

TEST_F(DecoderTest, ARefusedRequestIsCounted) {
  GenerateRequest request;
  request.stream = stream_;
  EXPECT_FALSE(decoder_->Submit(request).ok());
  EXPECT_EQ(metrics_.requests[Outcome::kInvalid].Value(), 1);
  EXPECT_TRUE(decoder_->Drain(std::chrono::seconds(0)));
  request.prompt = {20};
  EXPECT_FALSE(decoder_->Submit(request).ok());
  EXPECT_EQ(metrics_.requests[Outcome::kUnavailable].Value(), 1);
}

TEST_F(DecoderTest, AHandOffWithoutProgressIsGivenUp) {
  const auto call = Land();
  call->events.on_finished({.first_token = 42});
  WaitFor([&] { return !stream_->ended() && decoder_->load().cache.pages_transfer == 1; });
  clock_.Advance(std::chrono::seconds(8));
  receiver_.bytes = 1000;
  decoder_->Tick();  // there was some
  clock_.Advance(std::chrono::seconds(8));
  decoder_->Tick();
  clock_.Advance(std::chrono::seconds(8));
  decoder_->Tick();
  EXPECT_THAT(stream_->Wait(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("at 1000 bytes")));
  EXPECT_EQ(stream_->leg(), Leg::kTransfer);
  WaitFor([&] { return receiver_.aborted(); });
}

TEST_F(DecoderTest, AnAnswerThatTheRouterCutsShortIsAFinishedRequest) {
  Ask({.max_tokens = 400});
  WaitFor([&] { return !stream_->tokens().empty(); });
  decoder_->Finish({.request = {1, 1}, .attempt = 2});  // nobody's
  decoder_->Finish({.request = {1, 1}, .attempt = 1});
  EXPECT_THAT(stream_->Wait(), IsOk());
  EXPECT_LT(stream_->tokens().size(), 400u);
  EXPECT_EQ(metrics_.requests[Outcome::kOk].Value(), 1);
  EXPECT_EQ(metrics_.requests[Outcome::kCancelled].Value(), 0);
}

TEST_F(DecoderTest, NobodyWaitsForever) {
  Submit({{"p:1", 1}});
  client_.call(0)->events.on_accepted(1);
  clock_.Advance(std::chrono::seconds(101));
  decoder_->Tick();
  EXPECT_THAT(stream_->Wait(), StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("100 s")));
}

// The first request has one page of eight, and needs a second one when it has written 28 tokens.

TEST_F(DecoderTest, APromptThatIsComputedHereGivesWayToAnOlderSequence) {
  Ask({.max_tokens = 60});
  const auto younger = std::make_shared<FakeStream>();
  Ask({.prompt_tokens = 800, .stream = younger});
  EXPECT_THAT(stream_->Wait(), IsOk());
  EXPECT_THAT(younger->Wait(), IsOk());
  EXPECT_EQ(stream_->tokens().size(), 60u);
  EXPECT_EQ(younger->tokens().size(), 3u);
  EXPECT_LT(stream_->end_number(), younger->end_number());
}

TEST_F(DecoderTest, APromptThatGaveWayHasNotWaitedWhileItWasComputed) {
  const auto younger = std::make_shared<FakeStream>();
  stream_->on_send = [&](uint32_t tokens) {
    if (tokens == 1) {
      Ask({.prompt_tokens = 800, .stream = younger});
      clock_.Advance(std::chrono::seconds(101));
    }
    if (tokens >= 40) decoder_->Tick();  // the younger one has been waiting since token 28 or so
  };
  Ask({.max_tokens = 60});
  EXPECT_THAT(stream_->Wait(), IsOk());
  EXPECT_THAT(younger->Wait(), IsOk());
  EXPECT_EQ(younger->tokens().size(), 3u);
}

TEST_F(DecoderTest, AnOlderSequenceKeepsItsPagesWhileAYoungerOneLands) {
  const auto grant = [&](size_t n) {
    client_.call(n)->events.on_accepted(1);
    client_.call(n)->events.on_started();
    WaitFor([&] { return client_.call(n)->granted.load(); });
  };
  Ask({.peers = {{"p:1", 1}}, .max_tokens = 60});
  grant(0);
  const auto younger = std::make_shared<FakeStream>();
  Ask({.peers = {{"p:1", 1}}, .prompt_tokens = 800, .stream = younger});
  grant(1);
  client_.call(0)->events.on_finished({.first_token = 42});
  receiver_.EndLanding(absl::OkStatus());

  WaitFor([&] { return stream_->tokens().size() >= 27; });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // it would have been evicted by now
  EXPECT_FALSE(stream_->ended());
  EXPECT_EQ(decoder_->load().cache.pages_sequences, 1);
  EXPECT_EQ(decoder_->load().cache.pages_transfer, 7);

  client_.call(1)->events.on_finished({.first_token = 42});
  receiver_.EndLanding(absl::OkStatus());
  EXPECT_THAT(stream_->Wait(), IsOk());
  EXPECT_THAT(younger->Wait(), IsOk());
  EXPECT_EQ(stream_->tokens().size(), 60u);
}

}  // namespace
}  // namespace baton::decode
