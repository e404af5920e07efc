#include "engine/engine.h"

#include <algorithm>
#include <string>
#include <vector>

#include "engine/chunk_scheduler.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/core/test_engine.h"

namespace baton::engine {
namespace {

using ::baton::testing::IsOk;
using ::baton::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// One engine serves all tests that do not care about its options: it must come back empty.
class EngineTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { engine_ = MakeEngine(TestOptions()).release(); }
  static void TearDownTestSuite() {
    delete engine_;
    engine_ = nullptr;
  }
  void TearDown() override {
    EXPECT_THAT(engine_->AuditCache(), IsOk());
    EXPECT_EQ(engine_->usage().pages_free, engine_->usage().pages_total);
    EXPECT_EQ(engine_->usage().slots_free, engine_->usage().slots_total);
  }

  static Engine* engine_;
};
Engine* EngineTest::engine_ = nullptr;

TEST_F(EngineTest, RefusesPromptsThatItCannotServe) {
  const auto refusal = [](std::vector<int32_t> prompt, const SamplingParams& sampling) {
    const int64_t reserve = std::ssize(prompt) + 1;
    return engine_->NewSequence(std::move(prompt), sampling, reserve).status();
  };
  const auto invalid = [](const char* text) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text));
  };
  EXPECT_THAT(refusal({}, Greedy(1)), invalid("prompt is empty"));
  EXPECT_THAT(refusal({5, 1024}, Greedy(1)), invalid("prompt token 1 is 1024"));
  EXPECT_THAT(refusal({-1}, Greedy(1)), invalid("prompt token 0 is -1"));
  EXPECT_THAT(refusal(TestPrompt(24 * 128), Greedy(1)),
              StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("exceeds the 3072")));
  EXPECT_THAT(refusal({5}, {.top_p = 0}), invalid("top_p"));
  EXPECT_THAT(engine_->NewSequence({5, 6}, Greedy(1), 1).status(), invalid("reserve_tokens is 1"));
}

TEST_F(EngineTest, ReservesAllOrNothing) {
  auto first = *engine_->NewSequence(TestPrompt(10), Greedy(4000), 20 * 128);
  EXPECT_EQ(first->reserved_tokens(), 20 * 128);
  EXPECT_EQ(engine_->usage().pages_sequences, 20);
  EXPECT_THAT(engine_->NewSequence(TestPrompt(10), Greedy(4000), 5 * 128).status(),
              StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(engine_->CheckRoom(TestPrompt(10), 5 * 128),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("5 cache pages")));
  EXPECT_THAT(engine_->CheckRoom(TestPrompt(10), 4 * 128), IsOk());
  EXPECT_EQ(engine_->usage().slots_free, 3);
  EXPECT_EQ(engine_->usage().pages_free, 4);
  EXPECT_THAT(engine_->Grow(*first, 25 * 128), IsOk());  // no more than the context: 24 pages
  EXPECT_EQ(engine_->usage().pages_free, 0);
  EXPECT_THAT(engine_->NewSequence(TestPrompt(10), Greedy(1), 11).status(),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("0 of 24 are free")));
}

TEST_F(EngineTest, ReservesNoMoreThanTheSequenceCanComeToHave) {
  auto sequence = *engine_->NewSequence(TestPrompt(100), Greedy(28), 2000);
  EXPECT_EQ(sequence->reserved_tokens(), 128);
  EXPECT_THAT(engine_->Grow(*sequence, 2000), IsOk());
  EXPECT_EQ(sequence->reserved_tokens(), 128);
}

TEST_F(EngineTest, GrowthThatFailsLeavesTheSequenceRunning) {
  auto sequence = *engine_->NewSequence(TestPrompt(120), Greedy(30), 128);
  auto hog = *engine_->NewSequence(TestPrompt(10), Greedy(4000), 23 * 128);
  EXPECT_THAT(engine_->Grow(*sequence, 129), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(sequence->reserved_tokens(), 128);
  hog.reset();
  EXPECT_THAT(engine_->Grow(*sequence, 129), IsOk());
  EXPECT_EQ(sequence->reserved_tokens(), 256);
  EXPECT_THAT(RunToEnd(*engine_, *sequence).tokens, SizeIs(30));
}

TEST_F(EngineTest, AStepTakesFromEveryPromptWhatItHasLeft) {
  const auto first = MakeSequence(*engine_, TestPrompt(20), Greedy(1));
  const auto second = MakeSequence(*engine_, TestPrompt(20), Greedy(1));
  const StepItem begun{first.get(), 15};
  engine_->Step({&begun, 1});
  const std::vector<Sequence*> oldest_first = {first.get(), second.get()};
  const ChunkLimits one = {.max_sequences = 1};
  ASSERT_THAT(ScheduleChunks(oldest_first, one), SizeIs(1));
  const std::vector<StepItem> items = ScheduleChunks(oldest_first, {.step_tokens = 12});
  ASSERT_THAT(items, SizeIs(2));
  EXPECT_EQ(items[0].sequence, first.get());
  EXPECT_EQ(items[0].tokens, 5);
  EXPECT_EQ(items[1].sequence, second.get());
  EXPECT_EQ(items[1].tokens, 7);
}

TEST_F(EngineTest, TokensDoNotDependOnTheChunking) {
  const std::vector<int32_t> prompt = TestPrompt(131);
  const std::vector<int32_t> whole = Generate(*engine_, prompt, Greedy(5)).tokens;
  for (const int64_t chunk : {1, 7, 64, 128}) {
    EXPECT_EQ(Generate(*engine_, prompt, Greedy(5), chunk).tokens, whole) << chunk;
  }
}

TEST_F(EngineTest, TokensDoNotDependOnBatchMates) {
  const std::vector<int64_t> lengths = {1, 140, 33};
  const std::vector<SamplingParams> sampling = {
      Greedy(12), Greedy(7), {.seed = 4, .max_tokens = 10, .ignore_eos = true}};
  std::vector<std::vector<int32_t>> alone;
  for (size_t i = 0; i < lengths.size(); ++i) {
    alone.push_back(Generate(*engine_, TestPrompt(lengths[i]), sampling[i]).tokens);
  }
  std::vector<std::unique_ptr<Sequence>> sequences;
  for (size_t i = 0; i < lengths.size(); ++i) {
    sequences.push_back(MakeSequence(*engine_, TestPrompt(lengths[i]), sampling[i]));
  }
  // One joins every other step, so that chunks and decode steps of different lengths mix.
  for (size_t step = 0;; ++step) {
    std::vector<StepItem> items;
    for (size_t i = 0; i < sequences.size() && i <= step / 2; ++i) {
      if (engine_->FinishOf(*sequences[i]) != Finish::kNo) continue;
      items.push_back(NextItem(*sequences[i], 50));
    }
    if (items.empty()) break;
    EXPECT_THAT(engine_->Step(items), SizeIs(items.size()));
  }
  for (size_t i = 0; i < lengths.size(); ++i) {
    EXPECT_EQ(std::vector<int32_t>(sequences[i]->tokens().begin() + lengths[i],
                                   sequences[i]->tokens().end()),
              alone[i])
        << i;
  }
}

TEST_F(EngineTest, ASlotLeavesNothingToTheNextSequence) {
  const std::vector<int32_t> fresh = Generate(*engine_, TestPrompt(3), Greedy(6)).tokens;
  Generate(*engine_, TestPrompt(150, 5), Greedy(3));
  EXPECT_EQ(Generate(*engine_, TestPrompt(3), Greedy(6)).tokens, fresh);
  Generate(*engine_, TestPrompt(2, 6), Greedy(3));
  EXPECT_EQ(Generate(*engine_, TestPrompt(3), Greedy(6)).tokens, fresh);
}

TEST_F(EngineTest, GeneratesExactlyMaxTokens) {
  for (const uint32_t max_tokens : {1u, 2u, 3u, 4u, 5u}) {
    const Generated generated = Generate(*engine_, TestPrompt(20), Greedy(max_tokens));
    EXPECT_THAT(generated.tokens, SizeIs(max_tokens));
    EXPECT_EQ(generated.finish, Finish::kLength);
  }
}

TEST_F(EngineTest, AStopTokenEndsTheSequenceWhereverItComes) {
  const std::vector<int32_t> tokens = Generate(*engine_, TestPrompt(40), Greedy(8)).tokens;
  for (size_t i = 0; i < tokens.size(); ++i) {
    SamplingParams params = Greedy(8);
    params.stop_token_ids = {tokens[i]};
    const auto first = std::find(tokens.begin(), tokens.end(), tokens[i]);
    const Generated generated = Generate(*engine_, TestPrompt(40), params);
    EXPECT_EQ(generated.tokens, std::vector<int32_t>(tokens.begin(), first + 1));
    EXPECT_EQ(generated.finish, Finish::kStop);
  }
}

TEST_F(EngineTest, APreemptedSequenceGoesOnAsANewOneWithTheSameOutput) {
  const SamplingParams params{.seed = 11, .max_tokens = 12, .ignore_eos = true};
  const std::vector<int32_t> expected = Generate(*engine_, TestPrompt(50), params).tokens;
  auto sequence = MakeSequence(*engine_, TestPrompt(50), params);
  while (std::ssize(sequence->tokens()) < 55) {
    const StepItem item = NextItem(*sequence, 512);
    engine_->Step({&item, 1});
  }
  const std::vector<int32_t> so_far = sequence->tokens();
  sequence.reset();
  SamplingParams rest = params;
  rest.max_tokens -= static_cast<uint32_t>(so_far.size() - 50);
  std::vector<int32_t> resumed(so_far.begin() + 50, so_far.end());
  const std::vector<int32_t> tail = Generate(*engine_, so_far, rest).tokens;
  resumed.insert(resumed.end(), tail.begin(), tail.end());
  EXPECT_EQ(resumed, expected);
}

TEST_F(EngineTest, DecodeReachesNoFurtherThanTheSequence) {
  auto sequence = MakeSequence(*engine_, TestPrompt(10), Greedy(4));
  const StepItem item = NextItem(*sequence, 512);
  const std::vector<StepOutput> outputs = engine_->Step({&item, 1});
  EXPECT_THAT(outputs[0].new_tokens, SizeIs(1));
  EXPECT_EQ(outputs[0].sequence, sequence.get());
  EXPECT_EQ(sequence->computed(), 10);
  EXPECT_EQ(engine_->PositionsAfterDecode(*sequence), 13);  // two drafts
  auto short_one = MakeSequence(*engine_, TestPrompt(10), Greedy(2));
  const StepItem short_item = NextItem(*short_one, 512);
  engine_->Step({&short_item, 1});
  EXPECT_EQ(engine_->PositionsAfterDecode(*short_one), 11);  // one token to go: nothing to draft
}

TEST_F(EngineTest, AnInnerChunkSamplesNothing) {
  auto sequence = MakeSequence(*engine_, TestPrompt(10), Greedy(4));
  const StepItem item{.sequence = sequence.get(), .tokens = 9};
  EXPECT_THAT(engine_->Step({&item, 1})[0].new_tokens, ElementsAre());
  EXPECT_EQ(sequence->computed(), 9);
  EXPECT_EQ(engine_->FinishOf(*sequence), Finish::kNo);
}

TEST_F(EngineTest, AStepOfNothingDoesNothing) { EXPECT_THAT(engine_->Step({}), SizeIs(0)); }

TEST_F(EngineTest, NamesWhatTwoWorkersMustAgreeOn) {
  std::vector<std::string> names;
  for (const auto& [name, value] : engine_->semantics()) {
    names.push_back(name);
    EXPECT_FALSE(value.empty()) << name;
  }
  EXPECT_THAT(names, ElementsAre("model", "numerics", "index_topk", "kv_format", "index_format",
                                 "mtp_layers"));
  EXPECT_EQ(engine_->semantics()[2].second, "512");
}

TEST(EngineOptionsTest, NamesTheOptionThatDoesNotFit) {
  const auto refusal = [](auto change) {
    EngineOptions options = TestOptions();
    change(options);
    return Engine::Create(options).status();
  };
  const auto invalid = [](const char* text) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text));
  };
  EXPECT_THAT(refusal([](EngineOptions& o) { o.draft_tokens = 8; }), invalid("draft_tokens is 8"));
  EXPECT_THAT(refusal([](EngineOptions& o) { o.draft_tokens = -1; }), invalid("draft_tokens"));
  EXPECT_THAT(refusal([](EngineOptions& o) { o.forward.index_topk = -1; }), invalid("index_topk"));
  EXPECT_THAT(refusal([](EngineOptions& o) { o.forward.threads = -1; }), invalid("threads"));
  EXPECT_THAT(refusal([](EngineOptions& o) { o.cache.page_tokens = 100; }),
              invalid("page_tokens is 100"));
  EXPECT_THAT(refusal([](EngineOptions& o) { o.num_layers = 3; }), invalid("num_layers is 3"));
  EXPECT_FALSE(refusal([](EngineOptions& o) { o.model_dir = "/nowhere"; }).ok());
}

// Main memory takes no room until it is written, so that there is nothing to size the cache by.
TEST(EngineOptionsTest, WithoutANumberOfPagesACpuHasTheUsualOne) {
  EngineOptions options = TestOptions();
  options.cache.pages = 0;
  options.prefix = {.pages = INT64_MAX, .states = 4};
  options.prefix_percent = 50;
  const std::unique_ptr<Engine> engine = MakeEngine(options);
  EXPECT_EQ(engine->geometry().options.pages, CacheOptions{}.pages);
  EXPECT_EQ(engine->usage().pages_total, CacheOptions{}.pages);
}

TEST(EngineOptionsTest, DummyWeightsServeLikeOthers) {
  EngineOptions options = TestOptions();
  options.dummy_weights = true;
  options.num_layers = 4;
  const std::unique_ptr<Engine> engine = MakeEngine(options);
  EXPECT_EQ(engine->model_config().num_hidden_layers, 4);
  const std::unique_ptr<Sequence> sequence = MakeSequence(*engine, TestPrompt(20), Greedy(3));
  const StepItem item{.sequence = sequence.get(), .tokens = 20};
  EXPECT_EQ(engine->Step({&item, 1}).front().new_tokens.size(), 1u);
}

TEST(EngineDraftTest, TokensDoNotDependOnTheNumberOfDrafts) {
  const std::vector<SamplingParams> cases = {
      Greedy(16),
      {.seed = 3, .max_tokens = 16, .ignore_eos = true},
      {.temperature = 0.7f, .top_p = 0.9f, .top_k = 40, .seed = 9, .max_tokens = 16}};
  std::vector<Generated> expected;
  for (const int drafts : {0, 1, 3, 7}) {
    EngineOptions options = TestOptions();
    options.draft_tokens = drafts;
    const std::unique_ptr<Engine> engine = MakeEngine(options);
    int accepted = 0;
    for (size_t i = 0; i < cases.size(); ++i) {
      const Generated generated = Generate(*engine, TestPrompt(30), cases[i]);
      if (drafts == 0) {
        expected.push_back(generated);
        EXPECT_EQ(generated.drafted, 0);
        continue;
      }
      EXPECT_EQ(generated.tokens, expected[i].tokens) << drafts << " drafts, case " << i;
      EXPECT_EQ(generated.finish, expected[i].finish);
      accepted += generated.accepted;
    }
    EXPECT_EQ(accepted > 0, drafts > 0) << "the drafts are worthless";
  }
}

TEST(EngineContextTest, TheContextEndsASequence) {
  EngineOptions options = TestOptions();
  options.cache.pages = 1;
  const std::unique_ptr<Engine> engine = MakeEngine(options);
  EXPECT_EQ(engine->max_sequence_tokens(), 128);
  const Generated generated = Generate(*engine, TestPrompt(120), Greedy(1000));
  EXPECT_THAT(generated.tokens, SizeIs(8));
  EXPECT_EQ(generated.finish, Finish::kLength);
}

using EngineDeathTest = EngineTest;

TEST_F(EngineDeathTest, BrokenStepsAreFatal) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  auto sequence = MakeSequence(*engine_, TestPrompt(10), Greedy(1));
  const StepItem decode{.sequence = sequence.get(), .tokens = 0};
  const StepItem beyond{.sequence = sequence.get(), .tokens = 11};
  const StepItem chunk{.sequence = sequence.get(), .tokens = 10};
  EXPECT_DEATH(engine_->Step({&decode, 1}), "decoding with 0 of 10");
  EXPECT_DEATH(engine_->Step({&beyond, 1}), "a chunk of 11 from 0 of 10");
  EXPECT_DEATH(engine_->Step(std::vector<StepItem>{chunk, chunk}), "twice in a step");
  engine_->Step({&chunk, 1});
  EXPECT_DEATH(engine_->Step({&decode, 1}), "a finished sequence");
}

}  // namespace
}  // namespace baton::engine
