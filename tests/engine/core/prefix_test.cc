#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/core/test_engine.h"

// A sequence that begins from the prefix cache is the same, to the last bit, as one that does not.

namespace baton::engine {
namespace {

using ::baton::testing::IsOk;
using ::baton::testing::StatusIs;

constexpr int kPage = 128;  // tokens

EngineOptions CachingOptions() {
  EngineOptions options = TestOptions();
  options.cache.pages = 40;
  options.prefix = {.pages = 40, .states = 16};
  return options;
}

class PrefixTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { cold_ = MakeEngine(TestOptions()).release(); }
  static void TearDownTestSuite() {
    delete cold_;
    cold_ = nullptr;
  }
  ~PrefixTest() override {
    EXPECT_THAT(caching_->AuditCache(), IsOk());
    EXPECT_EQ(caching_->usage().pages_sequences, 0);
    EXPECT_EQ(caching_->usage().pages_available(), caching_->usage().pages_total);
  }

  // Computes `prompt` and an answer with the cache and without. The same comes out; returns it with
  // the prompt. `cached` says how many tokens must have been found.
  std::vector<int32_t> Turn(const std::vector<int32_t>& prompt, int64_t cached,
                            const SamplingParams& sampling = Greedy(9), int64_t chunk = 512) {
    SCOPED_TRACE(::testing::Message() << "a prompt of " << prompt.size() << " tokens");
    const std::unique_ptr<Sequence> cold = MakeSequence(*cold_, prompt, sampling);
    std::unique_ptr<Sequence> warm = MakeSequence(*caching_, prompt, sampling);
    EXPECT_EQ(warm->cached_tokens(), cached);
    EXPECT_EQ(warm->computed(), cached);
    const Generated expected = RunToEnd(*cold_, *cold);
    const Generated generated = RunToEnd(*caching_, *warm, chunk);
    EXPECT_EQ(generated.tokens, expected.tokens);
    EXPECT_EQ(generated.finish, expected.finish);
    EXPECT_EQ(generated.drafted, expected.drafted) << "MTP rows and all";
    EXPECT_EQ(generated.accepted, expected.accepted);
    ForEachLiveRange(cold_->geometry().layout(), cold->computed(), [&](const RecordRange& range) {
      if (range.stream == CacheStream::kMtpWindowKv) return;  // the newest are made when drafting
      EXPECT_TRUE(GatherRange(*caching_, *warm, range) == GatherRange(*cold_, *cold, range))
          << CacheStreamName(range.stream) << " layer " << range.layer;
    });
    std::vector<int32_t> tokens = warm->tokens();
    caching_->Retire(std::move(warm));
    EXPECT_THAT(caching_->AuditCache(), IsOk());
    return tokens;
  }

  static Engine* cold_;
  std::unique_ptr<Engine> caching_ = MakeEngine(CachingOptions());
};
Engine* PrefixTest::cold_ = nullptr;

std::vector<int32_t> Followed(std::vector<int32_t> tokens, const std::vector<int32_t>& by) {
  tokens.insert(tokens.end(), by.begin(), by.end());
  return tokens;
}

TEST_F(PrefixTest, TheSamePromptBeginsAtItsLastPageBoundary) {
  const std::vector<int32_t> prompt = TestPrompt(300);
  Turn(prompt, 0);
  Turn(prompt, 2 * kPage);
  Turn(TestPrompt(256), 0);  // a token must be left to compute
  Turn(TestPrompt(256), kPage);
}

TEST_F(PrefixTest, ATurnBeginsWhereTheOneBeforeItEnded) {
  std::vector<int32_t> said = Turn(TestPrompt(200), 0);
  for (int turn = 2; turn < 6; ++turn) {
    const std::vector<int32_t> prompt = Followed(said, TestPrompt(31 * turn, turn));
    said = Turn(prompt, std::ssize(said) - 1);  // all but the last token had been computed
  }
}

TEST_F(PrefixTest, WhereTwoPromptsPartAThirdBegins) {
  const std::vector<int32_t> common = TestPrompt(3 * kPage + 40);
  const auto ending = [&](int64_t tokens, uint32_t seed) {
    std::vector<int32_t> end = TestPrompt(tokens + 2, seed);
    return Followed(common, {end.begin() + 2, end.end()});
  };
  Turn(ending(300, 5), 0);
  Turn(ending(280, 6), 0);  // shares three pages, but has no state at their end
  Turn(ending(290, 7), 3 * kPage);
}

TEST_F(PrefixTest, AnAnswerThatIsNotQuotedFallsBackToThePrompt) {
  const std::vector<int32_t> prompt = TestPrompt(2 * kPage + 30);
  Turn(prompt, 0);
  Turn(Followed(prompt, TestPrompt(20, 8)), 2 * kPage);
}

TEST_F(PrefixTest, SampledAnswersAreTheSameToo) {
  SamplingParams sampling{.temperature = 1, .seed = 4, .max_tokens = 12, .ignore_eos = true};
  const std::vector<int32_t> prompt = TestPrompt(290);
  Turn(prompt, 0, sampling);
  Turn(prompt, 2 * kPage, sampling, /*chunk=*/17);
  sampling.seed = 5;
  Turn(prompt, 2 * kPage, sampling);
}

// Boundaries fall on every residue of the compression groups, chunks and drafts on all of them.
TEST_F(PrefixTest, ConversationsAreExactWhereverTheyStop) {
  std::mt19937 random(2);
  std::vector<int32_t> said = Turn(TestPrompt(101), 0);
  for (int turn = 0; turn < 14; ++turn) {
    const int64_t cached = std::ssize(said) - 1;
    const auto asked = static_cast<int64_t>(1 + random() % 9);
    said = Turn(Followed(said, TestPrompt(asked, random())), cached, Greedy(1 + random() % 7),
                static_cast<int64_t>(1 + random() % 40));
  }
}

TEST_F(PrefixTest, PackedFormatsAreKeptAsTheyAre) {
  EngineOptions options = CachingOptions();
  options.cache.kv_format = kernels::EntryFormat::kFp8Packed;
  options.cache.index_format = kernels::EntryFormat::kFp4Index;
  caching_ = MakeEngine(options);
  const std::vector<int32_t> prompt = TestPrompt(270);
  const std::vector<int32_t> expected = Generate(*caching_, prompt, Greedy(8)).tokens;
  for (const int64_t cached : {2 * kPage, 2 * kPage}) {
    std::unique_ptr<Sequence> again = MakeSequence(*caching_, prompt, Greedy(8));
    EXPECT_EQ(again->cached_tokens(), cached);
    EXPECT_EQ(RunToEnd(*caching_, *again).tokens, expected);
    caching_->Retire(std::move(again));
  }
}

// Without drafts nobody makes MTP rows of generated tokens, so there is no state to go on from.
TEST_F(PrefixTest, WithoutDraftsAnAnswerLeavesItsPagesButNoBoundary) {
  EngineOptions options = CachingOptions();
  options.draft_tokens = 0;
  caching_ = MakeEngine(options);
  const std::vector<int32_t> prompt = TestPrompt(kPage + 90);
  std::unique_ptr<Sequence> first = MakeSequence(*caching_, prompt, Greedy(60));
  RunToEnd(*caching_, *first);
  const std::vector<int32_t> said = first->tokens();
  caching_->Retire(std::move(first));
  EXPECT_EQ(caching_->usage().pages_prefix, 2);
  EXPECT_EQ(caching_->FindPrefix(Followed(said, {9, 9})).compute_from, kPage);
  // The next to come through makes one at the end of what is shared.
  Generate(*caching_, Followed(said, TestPrompt(100, 3)), Greedy(2));
  EXPECT_EQ(caching_->FindPrefix(Followed(said, {9, 9})).compute_from, 2 * kPage);
}

TEST_F(PrefixTest, WhatIsReceivedNeedsOnlyWhatIsNotThere) {
  const std::vector<int32_t> said = Turn(TestPrompt(300), 0);
  const std::vector<int32_t> prompt = Followed(said, TestPrompt(150, 2));
  const std::unique_ptr<Sequence> cold = MakeSequence(*cold_, prompt, Greedy(20));
  std::vector<int32_t> first;
  while (first.empty()) {
    const StepItem item = NextItem(*cold, 200);
    first = cold_->Step({&item, 1}).at(0).new_tokens;
  }
  auto received =
      caching_->NewSequence(prompt, Greedy(20), std::ssize(prompt) + 20, PrefixUse::kReceive);
  ASSERT_THAT(received, IsOk());
  Sequence& warm = **received;
  EXPECT_EQ(warm.cached_tokens(), std::ssize(said) - 1);
  EXPECT_EQ(warm.computed(), 0);
  ForEachLiveRange(cold_->geometry().layout(), std::ssize(prompt), [&](RecordRange range) {
    if (IsAppendOnly(range.stream)) {
      range.indices.begin = LiveRecords(range.stream, warm.cached_tokens()).end;
    }
    warm.records().Scatter(range, GatherRange(*cold_, *cold, range));
  });
  caching_->AdoptHandoff(warm, first.at(0));
  EXPECT_EQ(RunToEnd(*caching_, warm).tokens, RunToEnd(*cold_, *cold).tokens);
  ForEachLiveRange(cold_->geometry().layout(), std::ssize(prompt), [&](const RecordRange& range) {
    if (!IsAppendOnly(range.stream)) return;
    EXPECT_TRUE(GatherRange(*caching_, warm, range) == GatherRange(*cold_, *cold, range));
  });
}

// Until a hand-off has been adopted anything may stand in its records.
TEST_F(PrefixTest, AHandoffThatFailedLeavesNothing) {
  const std::vector<int32_t> prompt = TestPrompt(2 * kPage + 60);
  auto received =
      caching_->NewSequence(prompt, Greedy(4), std::ssize(prompt) + 4, PrefixUse::kReceive);
  ASSERT_THAT(received, IsOk());
  ForEachLiveRange(cold_->geometry().layout(), std::ssize(prompt), [&](const RecordRange& range) {
    std::vector<std::byte> garbage = GatherRange(*caching_, **received, range);
    std::ranges::fill(garbage, std::byte{0xA5});
    (*received)->records().Scatter(range, garbage);
  });
  caching_->Retire(*std::move(received));
  EXPECT_EQ(caching_->usage().pages_prefix, 0);
  EXPECT_EQ(caching_->FindPrefix(prompt).receive_from, 0);
  Turn(prompt, 0);
}

TEST_F(PrefixTest, SequencesShareWhileTheyLive) {
  const std::vector<int32_t> prompt = TestPrompt(3 * kPage + 10);
  std::unique_ptr<Sequence> first = MakeSequence(*caching_, prompt, Greedy(4));
  RunToEnd(*caching_, *first);
  std::unique_ptr<Sequence> second = MakeSequence(*caching_, prompt, Greedy(4));
  EXPECT_EQ(second->cached_tokens(), 3 * kPage);
  EXPECT_TRUE(std::ranges::equal(first->page_ids().first(3), second->page_ids().first(3)));
  EXPECT_NE(first->page_ids()[3], second->page_ids()[3]);
  EXPECT_EQ(caching_->usage().pages_sequences, 5);
  EXPECT_EQ(
      RunToEnd(*caching_, *second).tokens,
      std::vector<int32_t>(first->tokens().begin() + std::ssize(prompt), first->tokens().end()));
}

TEST_F(PrefixTest, AnAbandonedPromptLeavesWhatItHadKept) {
  const std::vector<int32_t> prompt = TestPrompt(2 * kPage + 60);
  std::unique_ptr<Sequence> sequence = MakeSequence(*caching_, prompt, Greedy(4));
  const StepItem chunk = {sequence.get(), 2 * kPage + 20};
  caching_->Step({&chunk, 1});
  caching_->Retire(std::move(sequence));
  EXPECT_EQ(caching_->usage().pages_prefix, 2);
  Turn(prompt, 2 * kPage);
}

TEST_F(PrefixTest, TheCacheMakesRoomForSequencesAndTheyStayExact) {
  EngineOptions options = CachingOptions();
  options.cache.pages = 6;
  caching_ = MakeEngine(options);
  for (uint32_t seed = 1; seed < 5; ++seed) Turn(TestPrompt(3 * kPage + 9, seed), 0);
  EXPECT_GT(caching_->prefix_pages_evicted(), 4);
  Turn(TestPrompt(3 * kPage + 9, 4), 3 * kPage);
  auto whole = caching_->NewSequence(TestPrompt(600, 4), Greedy(100), 700);
  ASSERT_THAT(whole, IsOk());
  EXPECT_EQ((*whole)->cached_tokens(), 3 * kPage);
  EXPECT_THAT(caching_->NewSequence(TestPrompt(100), Greedy(50), 150),
              StatusIs(absl::StatusCode::kResourceExhausted));
  whole->reset();
  EXPECT_THAT(caching_->CheckRoom(TestPrompt(3 * kPage + 9, 4), 9 * kPage), IsOk()) << "3 shared";
  EXPECT_THAT(caching_->CheckRoom(TestPrompt(3 * kPage + 9, 9), 9 * kPage),
              StatusIs(absl::StatusCode::kResourceExhausted));
}

}  // namespace
}  // namespace baton::engine
