#include "engine/cuda/step_graphs.h"

#include <cmath>
#include <cstring>
#include <optional>
#include <vector>

#include "kernels/logprobs.h"
#include "tests/engine/cuda/cuda_test.h"

namespace baton::engine {
namespace {

using cuda::PassShape;
using cuda::StepGraphs;

TEST(StepGraphsTest, RoundsShapesUp) {
  const auto rows = [](int64_t rows) {
    const PassShape shape{.rows = rows, .sequences = rows, .sequence_rows = 1};
    return StepGraphs::RoundUp(shape, 256, 1 << 20).rows;
  };
  EXPECT_EQ(rows(1), 1);
  EXPECT_EQ(rows(3), 4);
  EXPECT_EQ(rows(5), 8);
  EXPECT_EQ(rows(17), 24);
  EXPECT_EQ(rows(65), 80);
  EXPECT_EQ(rows(256), 256);
  const PassShape wide = StepGraphs::RoundUp(
      {.rows = 6, .sequences = 2, .sequence_rows = 3, .positions = 5000}, 256, 1 << 20);
  EXPECT_EQ(wide.sequence_rows, 4);
  EXPECT_EQ(wide.sequences, 8);
  EXPECT_EQ(wide.positions, 8192);
  EXPECT_EQ(wide.pages, 32);
  EXPECT_EQ(
      StepGraphs::RoundUp({.rows = 1, .sequence_rows = 1, .positions = 5000}, 256, 6000).positions,
      6000);
}

TEST(StepGraphsTest, AStepOfSeveralRanksHasAShapeThatOneCouldHave) {
  const PassShape own = StepGraphs::RoundUp(
      {.rows = 6, .sequences = 2, .sequence_rows = 3, .positions = 5000}, 256, 1 << 20);
  const Step step{
      .rows = {8, 0, 8}, .sequence_rows = own.sequence_rows, .positions = own.positions};
  const PassShape shared = StepGraphs::ShapeOf(step, step.rows[2], 256);
  EXPECT_EQ(shared.rows, own.rows);
  EXPECT_EQ(shared.sequences, own.sequences);
  EXPECT_EQ(shared.sequence_rows, own.sequence_rows);
  EXPECT_EQ(shared.positions, own.positions);
  EXPECT_EQ(shared.pages, own.pages);
}

// Two sequences, in slots 0 and 2 of a cache.
class StepTest : public ::testing::Test {
 protected:
  SequenceChunk Chunk(int sequence, int64_t start, int64_t count) const {
    return {.tokens = std::span(tokens_).subspan(start, count),
            .start = start,
            .pages = std::span(place_.pages).subspan(sequence * 4, 4),
            .slot = 2 * sequence};
  }
  std::vector<float> Forward(const std::vector<SequenceChunk>& batch) {
    const std::span<const float> logits = place_.model.Forward(batch, *place_.cache).logits;
    return {logits.begin(), logits.end()};
  }
  std::vector<std::byte> Records(int sequence, int64_t tokens) {
    PageList pages(4);
    pages.Append(std::span(place_.pages).subspan(sequence * 4, 4));
    const auto records = BothBackends::Get("cuda").NewRecords(*place_.cache, pages, 2 * sequence);
    std::vector<std::byte> all;
    for (const StreamLayout& stream : place_.cache->geometry().layout().streams) {
      for (uint32_t layer = 0; layer < stream.layers; ++layer) {
        const RecordRange range{stream.stream, layer, LiveRecords(stream.stream, tokens)};
        std::vector<std::byte> bytes(static_cast<size_t>(range.indices.size()) *
                                     stream.record_bytes);
        records->Gather(range, bytes);
        all.insert(all.end(), bytes.begin(), bytes.end());
      }
    }
    return all;
  }

  const std::vector<int32_t> tokens_ = TestTokens(900);
  Place place_{"cuda"};
};

// A step is issued the first time and is a graph from then on.
TEST_F(StepTest, IssuedAndReplayedStepsHaveTheSameBits) {
  Forward({Chunk(0, 0, 700)});
  for (const int64_t rows : {1, 3}) {
    const std::vector<float> issued = Forward({Chunk(0, 700, rows)});
    for (int i = 0; i < 3; ++i) EXPECT_EQ(Forward({Chunk(0, 700, rows)}), issued) << rows;
  }
}

TEST_F(StepTest, AGraphOfShortContextsServesLongOnes) {
  Forward({Chunk(0, 0, 5)});
  Forward({Chunk(0, 5, 1)});  // captured here
  Forward({Chunk(0, 0, 800)});
  Forward({Chunk(1, 0, 800)});
  const std::vector<float> replayed = Forward({Chunk(0, 800, 1)});
  const std::vector<float> fresh = [&] {
    // An observer keeps a step from being a graph.
    const ForwardObserver observer{.on_layer = [](int, int64_t, std::span<const BFloat16>) {},
                                   .on_selection = {}};
    const SequenceChunk chunk = Chunk(1, 800, 1);
    const auto logits = place_.model.Forward({&chunk, 1}, *place_.cache, observer).logits;
    return std::vector<float>(logits.begin(), logits.end());
  }();
  ASSERT_EQ(replayed.size(), fresh.size());
  double difference = 0;
  double squares = 0;
  for (size_t i = 0; i < fresh.size(); ++i) {
    difference += (replayed[i] - fresh[i]) * (replayed[i] - fresh[i]);
    squares += fresh[i] * fresh[i];
  }
  // Attention may be split differently where fewer positions are expected.
  EXPECT_LT(std::sqrt(difference / squares), 0.2);
}

TEST_F(StepTest, PaddedRowsAndUnusedSequencesTouchNothing) {
  Forward({Chunk(0, 0, 640)});
  Forward({Chunk(1, 0, 512)});
  const std::vector<std::byte> before = Records(0, 640);
  for (int64_t step = 0; step < 130; step += 3) Forward({Chunk(1, 512 + step, 3)});
  EXPECT_EQ(Records(0, 640), before);
  const std::vector<float> alone = Forward({Chunk(0, 640, 1)});
  EXPECT_EQ(Forward({Chunk(0, 640, 1)}), alone);
}

TEST_F(StepTest, SequencesOfAStepDoNotMeet) {
  Forward({Chunk(0, 0, 640)});
  Forward({Chunk(1, 0, 333)});
  const std::vector<float> first = Forward({Chunk(0, 640, 1)});
  const std::vector<float> second = Forward({Chunk(1, 333, 1)});
  const std::vector<float> both = Forward({Chunk(0, 640, 1), Chunk(1, 333, 1)});
  const auto best = [](std::span<const float> logits) {
    return std::max_element(logits.begin(), logits.end()) - logits.begin();
  };
  ASSERT_EQ(both.size(), first.size() + second.size());
  EXPECT_EQ(best(std::span(both).first(first.size())), best(first));
  EXPECT_EQ(best(std::span(both).subspan(first.size())), best(second));
}

TEST_F(StepTest, DraftsReadTheCarryAsIfTheirStreamsWereGiven) {
  SequenceChunk chunk = Chunk(0, 0, 600);
  chunk.first_streams_row = 598;
  const std::span<const BFloat16> streams =
      place_.model.Forward({&chunk, 1}, *place_.cache).streams;
  const std::vector<BFloat16> given(streams.begin(), streams.end());
  MtpChunk mtp{.next_tokens = std::span(tokens_).subspan(599, 2),
               .streams = given,
               .start = 598,
               .slot = 0,
               .wants_logits = true};
  const auto logits = [&] {
    const std::span<const float> row = place_.model.ForwardMtp({&mtp, 1}, *place_.cache).logits;
    return std::vector<float>(row.begin(), row.end());
  };
  const std::vector<float> expected = logits();
  mtp.streams = {};
  for (int i = 0; i < 3; ++i) EXPECT_EQ(logits(), expected);
}

TEST_F(StepTest, TokensSampledOnTheDeviceAreThoseOfTheHost) {
  Forward({Chunk(0, 0, 700)});
  const std::vector<SamplingParams> all = {
      {.temperature = 0},
      {.temperature = 0.8f, .seed = 5},
      {.temperature = 1, .top_p = 0.9f, .top_k = 40, .seed = 6},
      {.temperature = 1, .min_p = 0.05f, .seed = 7, .min_tokens = 9, .stop_token_ids = {9, 3}}};
  for (const SamplingParams& params : all) {
    std::vector<RowSampling> sampling;
    for (int64_t row = 0; row < 4; ++row) {
      sampling.push_back({&params, {.position = 701 + row, .generated = 7, .eos_token_id = 1}});
    }
    SequenceChunk chunk = Chunk(0, 700, 4);
    const std::vector<float> logits = Forward({chunk});
    const size_t vocab = logits.size() / 4;
    std::vector<int32_t> expected;
    Sampler sampler;
    for (size_t row = 0; row < 4; ++row) {
      expected.push_back(sampler.Sample(std::span(logits).subspan(row * vocab, vocab), params,
                                        sampling[row].point));
    }
    chunk.sampling = sampling;
    const ForwardResult result = place_.model.Forward({&chunk, 1}, *place_.cache);
    EXPECT_TRUE(result.logits.empty());
    EXPECT_EQ(std::vector<int32_t>(result.tokens.begin(), result.tokens.end()), expected)
        << "seed " << params.seed;
  }
}

TEST_F(StepTest, LogprobsOfRowsThatAskAreThoseOfTheHost) {
  Forward({Chunk(0, 0, 700)});
  SequenceChunk chunk = Chunk(0, 700, 4);
  const std::vector<float> logits = Forward({chunk});
  const size_t vocab = logits.size() / 4;
  const SamplingParams params{.temperature = 0.8f, .seed = 5};
  const std::vector<std::optional<int32_t>> asked = {5, std::nullopt, 0, kMaxTopLogprobs};
  std::vector<RowSampling> sampling;
  for (int64_t row = 0; row < 4; ++row) {
    sampling.push_back({&params, {.position = 701 + row}, asked[static_cast<size_t>(row)]});
  }
  chunk.sampling = sampling;
  const ForwardResult result = place_.model.Forward({&chunk, 1}, *place_.cache);
  ASSERT_EQ(result.logprobs.size(), 3u);
  size_t found = 0;
  for (size_t row = 0; row < 4; ++row) {
    if (!asked[row]) continue;
    const TokenLogprobs& actual = result.logprobs[found++];
    std::vector<TokenLogprob> expected(1 + static_cast<size_t>(*asked[row]));
    kernels::Logprobs(std::span(logits).subspan(row * vocab, vocab), result.tokens[row], expected);
    ASSERT_EQ(actual.top.size() + 1, expected.size());
    EXPECT_EQ(actual.chosen.token, result.tokens[row]);
    EXPECT_NEAR(actual.chosen.logprob, expected[0].logprob, 1e-5);
    for (size_t i = 0; i < actual.top.size(); ++i) {
      EXPECT_EQ(actual.top[i].token, expected[i + 1].token) << "row " << row << ", place " << i;
      EXPECT_NEAR(actual.top[i].logprob, expected[i + 1].logprob, 1e-5);
    }
  }
  sampling[0].top_logprobs = sampling[2].top_logprobs = sampling[3].top_logprobs = std::nullopt;
  EXPECT_TRUE(place_.model.Forward({&chunk, 1}, *place_.cache).logprobs.empty());
}

}  // namespace
}  // namespace baton::engine
