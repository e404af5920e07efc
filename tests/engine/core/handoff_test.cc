#include <algorithm>
#include <memory>
#include <vector>

#include "common/cache_layout.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/core/test_engine.h"

// A prompt computed on one engine and decoded on another, without any transport in between.

namespace baton::engine {
namespace {

using ::baton::testing::IsOk;

// Computes the prompt on `source`, moves the live records and nothing else, and lets `target` take
// over.
std::unique_ptr<Sequence> HandOver(Engine& source, Engine& target,
                                   const std::vector<int32_t>& prompt,
                                   const SamplingParams& sampling) {
  EXPECT_EQ(source.semantics(), target.semantics());
  EXPECT_EQ(source.geometry().layout(), target.geometry().layout());
  const std::unique_ptr<Sequence> from = MakeSequence(source, prompt, sampling);
  std::vector<int32_t> first;
  while (first.empty()) {
    const StepItem item = NextItem(*from, 100);
    first = source.Step({&item, 1}).at(0).new_tokens;
  }
  std::unique_ptr<Sequence> to = MakeSequence(target, prompt, sampling);
  ForEachLiveRange(source.geometry().layout(), std::ssize(prompt), [&](const RecordRange& range) {
    to->records().Scatter(range, GatherRange(source, *from, range));
  });
  target.AdoptHandoff(*to, first.at(0));
  return to;
}

// Fills the slots and pages that the next sequences get with what other sequences leave behind.
void Soil(Engine& engine) { Generate(engine, TestPrompt(140, 77), Greedy(6)); }

class HandoffTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    EngineOptions options = TestOptions();
    colocated_ = MakeEngine(options).release();
    options.cache.page_tokens = 256;
    options.cache.pages = 12;
    options.draft_tokens = 0;  // a prefill worker has no use for drafts
    source_ = MakeEngine(options).release();
    options.cache.page_tokens = 128;
    options.cache.rollback_rows = 3;
    options.draft_tokens = 2;
    target_ = MakeEngine(options).release();
    Soil(*source_);
    Soil(*target_);
  }
  static void TearDownTestSuite() {
    for (Engine** engine : {&colocated_, &source_, &target_}) {
      EXPECT_THAT((*engine)->AuditCache(), IsOk());
      EXPECT_EQ((*engine)->usage().pages_sequences, 0);
      delete *engine;
      *engine = nullptr;
    }
  }

  static void ExpectSameAsColocated(int64_t tokens);

  static Engine* colocated_;
  static Engine* source_;
  static Engine* target_;
};
Engine* HandoffTest::colocated_ = nullptr;
Engine* HandoffTest::source_ = nullptr;
Engine* HandoffTest::target_ = nullptr;

// The target continues as if it had computed the prompt itself.
void HandoffTest::ExpectSameAsColocated(int64_t tokens) {
  SCOPED_TRACE(::testing::Message() << "a prompt of " << tokens << " tokens");
  const std::vector<int32_t> prompt = TestPrompt(tokens);
  const SamplingParams sampling = Greedy(7);
  const std::unique_ptr<Sequence> whole = MakeSequence(*colocated_, prompt, sampling);
  const Generated expected = RunToEnd(*colocated_, *whole);
  const std::unique_ptr<Sequence> handed = HandOver(*source_, *target_, prompt, sampling);
  const Generated generated = RunToEnd(*target_, *handed);
  EXPECT_EQ(generated.tokens, expected.tokens);
  EXPECT_EQ(generated.finish, expected.finish);
  // The drafts too, or the MTP rows did not arrive.
  EXPECT_EQ(generated.drafted, expected.drafted);
  EXPECT_EQ(generated.accepted, expected.accepted);
  // And the caches are the same to the last bit. MTP window rows are made when tokens are drafted,
  // so the newest are missing after the last step; of the prompt all are there.
  ASSERT_EQ(handed->computed(), whole->computed());
  ForEachLiveRange(target_->geometry().layout(), handed->computed(), [&](const RecordRange& range) {
    if (range.stream == CacheStream::kMtpWindowKv) return;
    EXPECT_TRUE(GatherRange(*target_, *handed, range) == GatherRange(*colocated_, *whole, range))
        << CacheStreamName(range.stream) << " layer " << range.layer;
  });
  const RecordRange mtp{CacheStream::kMtpWindowKv, 0, {std::max<int64_t>(tokens - 100, 0), tokens}};
  EXPECT_TRUE(GatherRange(*target_, *handed, mtp) == GatherRange(*colocated_, *whole, mtp));
}

TEST_F(HandoffTest, IsExactAtEveryResidueOfTheCompressionGroups) {
  for (const int64_t tokens : {1, 2, 3, 4, 5, 6, 7, 8, 63}) ExpectSameAsColocated(tokens);
}

TEST_F(HandoffTest, IsExactRoundTheWindowAndTheFirstLongGroup) {
  for (const int64_t tokens : {126, 127, 128, 129, 130}) ExpectSameAsColocated(tokens);
}

TEST_F(HandoffTest, IsExactRoundTheEndOfAPage) {
  for (const int64_t tokens : {255, 256, 257}) ExpectSameAsColocated(tokens);
}

TEST_F(HandoffTest, SampledDecodingGoesOnToo) {
  const SamplingParams sampling{.temperature = 0.8f, .seed = 21, .max_tokens = 10};
  const std::vector<int32_t> prompt = TestPrompt(131);
  const std::vector<int32_t> expected = Generate(*colocated_, prompt, sampling).tokens;
  EXPECT_EQ(RunToEnd(*target_, *HandOver(*source_, *target_, prompt, sampling)).tokens, expected);
}

TEST_F(HandoffTest, WhatIsHandedOverDoesNotDependOnBatchMatesAndChunks) {
  const std::vector<int32_t> prompt = TestPrompt(140);
  const auto alone = MakeSequence(*target_, prompt, Greedy(2));
  const StepItem whole = NextItem(*alone, 512);
  target_->Step({&whole, 1});

  const auto decoding = MakeSequence(*target_, TestPrompt(20, 3), Greedy(20));
  const auto waiting = MakeSequence(*target_, TestPrompt(60, 4), Greedy(20));
  const StepItem first = NextItem(*decoding, 512);
  target_->Step({&first, 1});
  const auto mixed = MakeSequence(*target_, prompt, Greedy(2));
  while (mixed->computed() < 140) {
    target_->Step(std::vector<StepItem>{NextItem(*decoding, 8), NextItem(*waiting, 19),
                                        NextItem(*mixed, 47)});
  }
  EXPECT_EQ(mixed->tokens(), alone->tokens());
  ForEachLiveRange(target_->geometry().layout(), 140, [&](const RecordRange& range) {
    EXPECT_TRUE(GatherRange(*target_, *mixed, range) == GatherRange(*target_, *alone, range))
        << CacheStreamName(range.stream) << " layer " << range.layer;
  });
}

TEST_F(HandoffTest, AFirstTokenMayEndTheSequence) {
  const std::vector<int32_t> prompt = TestPrompt(9);
  SamplingParams sampling = Greedy(1);
  EXPECT_EQ(target_->FinishOf(*HandOver(*source_, *target_, prompt, sampling)), Finish::kLength);
  const int32_t first = Generate(*colocated_, prompt, Greedy(1)).tokens.at(0);
  sampling = Greedy(5);
  sampling.stop_token_ids = {first};
  EXPECT_EQ(target_->FinishOf(*HandOver(*source_, *target_, prompt, sampling)), Finish::kStop);
}

TEST_F(HandoffTest, ASequenceHandedOverRunsBesideOneComputedHere) {
  const std::vector<int32_t> prompt = TestPrompt(30);
  const std::vector<int32_t> other = TestPrompt(70, 9);
  const std::vector<int32_t> expected = Generate(*colocated_, prompt, Greedy(8)).tokens;
  const std::vector<int32_t> expected_other = Generate(*colocated_, other, Greedy(8)).tokens;
  const auto handed = HandOver(*source_, *target_, prompt, Greedy(8));
  const auto local = MakeSequence(*target_, other, Greedy(8));
  for (bool running = true; running;) {
    std::vector<StepItem> items;
    for (Sequence* sequence : {handed.get(), local.get()}) {
      if (target_->FinishOf(*sequence) == Finish::kNo) items.push_back(NextItem(*sequence, 32));
    }
    running = !items.empty();
    target_->Step(items);
  }
  EXPECT_EQ(std::vector<int32_t>(handed->tokens().begin() + 30, handed->tokens().end()), expected);
  EXPECT_EQ(std::vector<int32_t>(local->tokens().begin() + 70, local->tokens().end()),
            expected_other);
}

TEST(HandoffFormatTest, PackedFormatsAreHandedOverToo) {
  EngineOptions options = TestOptions();
  options.cache.kv_format = kernels::EntryFormat::kFp8Packed;
  options.cache.index_format = kernels::EntryFormat::kFp4Index;
  const std::unique_ptr<Engine> source = MakeEngine(options);
  options.cache.page_tokens = 256;
  const std::unique_ptr<Engine> target = MakeEngine(options);
  const std::vector<int32_t> prompt = TestPrompt(259);
  const std::vector<int32_t> expected = Generate(*source, prompt, Greedy(6)).tokens;
  EXPECT_EQ(RunToEnd(*target, *HandOver(*source, *target, prompt, Greedy(6))).tokens, expected);
}

TEST(HandoffFormatTest, EnginesThatValueTheCacheDifferentlySaySo) {
  const std::unique_ptr<Engine> base = MakeEngine(TestOptions());
  const auto differs = [&](auto change) {
    EngineOptions options = TestOptions();
    change(options);
    return MakeEngine(options)->semantics() != base->semantics();
  };
  EXPECT_TRUE(differs([](EngineOptions& o) { o.forward.numerics = Numerics::kExact; }));
  EXPECT_TRUE(differs([](EngineOptions& o) { o.forward.deterministic = true; }));
  EXPECT_TRUE(differs([](EngineOptions& o) { o.forward.index_topk = 16; }));
  EXPECT_TRUE(
      differs([](EngineOptions& o) { o.cache.index_format = kernels::EntryFormat::kFp8Index; }));
  EXPECT_FALSE(differs([](EngineOptions& o) { o.draft_tokens = 0; }));
  EXPECT_FALSE(differs([](EngineOptions& o) { o.cache.page_tokens = 256; }));
}

}  // namespace
}  // namespace baton::engine
