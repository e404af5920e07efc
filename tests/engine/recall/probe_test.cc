#include "engine/recall/probe.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/core/test_engine.h"

namespace baton::engine {
namespace {

using ::baton::testing::IsOk;

constexpr int kTopK = 16;  // so that a short prompt has something to leave out

std::unique_ptr<Probe> MakeProbe(Numerics numerics, kernels::EntryFormat format, bool handoff) {
  ProbeOptions options;
  options.engine = TestOptions();
  options.engine.forward.numerics = numerics;
  options.engine.forward.index_topk = kTopK;
  options.engine.cache.index_format = format;
  options.chunk_tokens = 100;
  options.handoff = handoff;
  auto probe = Probe::Create(options);
  EXPECT_THAT(probe, IsOk());
  return probe.ok() ? *std::move(probe) : nullptr;
}

ProbeRequest Request(int64_t tokens) {
  return {.prompt = TestPrompt(tokens), .needle = {40, 49}, .max_tokens = 4, .explain = true};
}

// Entries of the needle are selected exactly if they rank among the best.
void ExpectConsistent(const ProbeAnswer& answer) {
  ASSERT_FALSE(answer.rows.empty());
  for (const RowReport& row : answer.rows) {
    ASSERT_EQ(row.layers.size(), 3u);
    for (const LayerReport& layer : row.layers) {
      EXPECT_EQ(layer.visible, (row.position + 1) / 4);
      EXPECT_EQ(layer.selected, kTopK);
      ASSERT_EQ(layer.needle.size(), 3u);  // tokens 40 to 48
      EXPECT_EQ(layer.needle[0].entry, 10);
      for (const EntryReport& entry : layer.needle) {
        EXPECT_EQ(entry.selected, entry.rank < kTopK);
        EXPECT_EQ(entry.selected_fp32, entry.rank_fp32 < kTopK);
        EXPECT_LE(entry.attention, 1);
      }
    }
  }
}

TEST(ProbeTest, UnderTheReferencesNumericsEveryFormatSelectsWhatFp32Does) {
  using kernels::EntryFormat;
  for (const EntryFormat format :
       {EntryFormat::kBf16, EntryFormat::kFp8Index, EntryFormat::kFp4Index}) {
    const auto answer = MakeProbe(Numerics::kReference, format, false)->Ask(Request(303));
    ASSERT_THAT(answer, IsOk());
    ExpectConsistent(*answer);
    for (const RowReport& row : answer->rows) {
      for (const LayerReport& layer : row.layers) {
        EXPECT_GE(layer.overlap, 1 - 1.0 / kTopK);
        for (const EntryReport& entry : layer.needle) {
          EXPECT_NEAR(entry.score, entry.score_fp32, 1e-4 * std::abs(entry.score_fp32) + 1e-5);
        }
      }
    }
  }
}

TEST(ProbeTest, ExactNumericsDifferFromFp32ByRoundingOnly) {
  const auto probe = MakeProbe(Numerics::kExact, kernels::EntryFormat::kBf16, false);
  const auto answer = probe->Ask(Request(303));
  ASSERT_THAT(answer, IsOk());
  ExpectConsistent(*answer);
  for (const RowReport& row : answer->rows) {
    for (const LayerReport& layer : row.layers) EXPECT_GE(layer.overlap, 0.8);
  }
}

TEST(ProbeTest, AHandoffChangesNothingAndExplainingNeither) {
  const auto alone = MakeProbe(Numerics::kReference, kernels::EntryFormat::kBf16, false);
  const auto handed = MakeProbe(Numerics::kReference, kernels::EntryFormat::kBf16, true);
  for (const int64_t tokens : {256, 301, 302, 303}) {
    ProbeRequest request = Request(tokens);
    const auto explained = handed->Ask(request);
    request.explain = false;
    const auto answer = alone->Ask(request);
    ASSERT_THAT(explained, IsOk());
    ASSERT_THAT(answer, IsOk());
    EXPECT_EQ(explained->tokens, answer->tokens);
    EXPECT_TRUE(answer->rows.empty());
    EXPECT_EQ(explained->handoff.size(), 10u);
    for (const StreamReport& stream : explained->handoff) EXPECT_EQ(stream.different, 0);
  }
}

TEST(ProbeTest, RefusesWhatItCannotAsk) {
  const auto probe = MakeProbe(Numerics::kReference, kernels::EntryFormat::kBf16, false);
  const auto refused = [&](const ProbeRequest& request) {
    return absl::IsInvalidArgument(probe->Ask(request).status());
  };
  EXPECT_TRUE(refused({}));
  EXPECT_TRUE(refused(Request(24 * 128)));  // no room for the answer
  ProbeRequest request = Request(60);
  request.needle = {50, 61};
  EXPECT_TRUE(refused(request));
  request = Request(60);
  request.prompt[3] = 1 << 20;
  EXPECT_TRUE(refused(request));
}

}  // namespace
}  // namespace baton::engine
