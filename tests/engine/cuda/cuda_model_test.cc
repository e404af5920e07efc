#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "engine/model/forward.h"
#include "tests/engine/cuda/cuda_test.h"
#include "tests/engine/model/test_model.h"

namespace baton::engine {
namespace {

constexpr int64_t kTokens = 1100;  // past four pages of 256, with a selection of 64 of 275

// RMS of the difference over the spread of the expected row.
double Ratio(std::span<const float> actual, std::span<const float> expected) {
  double difference = 0;
  double sum = 0;
  double squares = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    difference += (actual[i] - expected[i]) * (actual[i] - expected[i]);
    sum += expected[i];
    squares += expected[i] * expected[i];
  }
  const auto n = static_cast<double>(expected.size());
  return std::sqrt(difference / n / (squares / n - (sum / n) * (sum / n)));
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

class CudaModelTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    tokens_ = TestTokens(kTokens);
    Place cpu("cpu");
    expected_ = cpu.Run(tokens_, 0, kTokens, 512);
  }

  // The two sum in different orders, and on this text, which says nothing, a last bit flips an FP4
  // code or an expert in every other row: medians of 0.05 and 97 % equal tokens were measured. A
  // wrong op leaves nothing in common.
  static void ExpectClose(const LogitsRows& actual, int64_t first, const std::string& what) {
    std::vector<double> ratios;
    int same_token = 0;
    for (size_t row = 0; row < actual.size(); ++row) {
      const std::vector<float>& want = expected_[first + row];
      ratios.push_back(Ratio(actual[row], want));
      ASSERT_FALSE(std::isnan(ratios.back())) << what << ": row " << first + row;
      same_token +=
          std::max_element(actual[row].begin(), actual[row].end()) - actual[row].begin() ==
          std::max_element(want.begin(), want.end()) - want.begin();
    }
    EXPECT_LT(Median(ratios), 0.1) << what;
    EXPECT_GT(same_token, 0.9 * static_cast<double>(actual.size())) << what;
  }

  static std::vector<int32_t> tokens_;
  static LogitsRows expected_;
};
std::vector<int32_t> CudaModelTest::tokens_;
LogitsRows CudaModelTest::expected_;

TEST_F(CudaModelTest, ComputesWhatTheCpuComputes) {
  for (const int64_t chunk : {1100, 256, 97}) {
    Place cuda("cuda");
    ExpectClose(cuda.Run(tokens_, 0, kTokens, chunk), 0, "chunks of " + std::to_string(chunk));
  }
}

TEST_F(CudaModelTest, DecodesAfterPrefill) {
  Place cuda("cuda");
  constexpr int64_t kPrompt = 1000;
  cuda.Run(tokens_, 0, kPrompt, 512);
  ExpectClose(cuda.Run(tokens_, kPrompt, kTokens, 1), kPrompt, "token by token");
  cuda.Run(tokens_, 0, kPrompt, 512);
  ExpectClose(cuda.Run(tokens_, kPrompt, kTokens, 3), kPrompt, "three rows a step");
}

TEST_F(CudaModelTest, OtherStorageFormatsComputeTheSameOnTheReferenceGrid) {
  CacheOptions options = Place::kOptions;
  options.kv_format = kernels::EntryFormat::kFp8Packed;
  for (const kernels::EntryFormat index :
       {kernels::EntryFormat::kFp8Index, kernels::EntryFormat::kFp4Index}) {
    options.index_format = index;
    Place cuda("cuda", options);
    ExpectClose(cuda.Run(tokens_, 0, kTokens, 300), 0, "quantised caches");
  }
}

TEST_F(CudaModelTest, SequencesOfABatchDoNotMeet) {
  Place cuda("cuda");
  const std::vector<int32_t> other = TestTokens(700, 9);
  const std::vector<int32_t> first_pages(cuda.pages.begin(), cuda.pages.begin() + 5);
  const std::vector<int32_t> other_pages(cuda.pages.begin() + 5, cuda.pages.end());
  const std::vector<SequenceChunk> batch = {
      {.tokens = other, .start = 0, .pages = other_pages, .slot = 0, .first_logits_row = 700},
      {.tokens = tokens_, .start = 0, .pages = first_pages, .slot = 2}};
  const ForwardResult result = cuda.model.Forward(batch, *cuda.cache);
  ExpectClose(SplitRows(result.logits, cuda.model.config().vocab_size), 0, "second of a batch");
}

// A sequence computed on the device goes on on the CPU, and the other way round.
TEST_F(CudaModelTest, CachesMoveBetweenBackends) {
  constexpr int64_t kPrompt = 1003;
  for (const auto& [from, to] : {std::pair{"cuda", "cpu"}, std::pair{"cpu", "cuda"}}) {
    Place source(from);
    Place target(to);
    source.Run(tokens_, 0, kPrompt, 512);
    PageList source_pages(8);
    PageList target_pages(8);
    source_pages.Append(source.pages);
    target_pages.Append(target.pages);
    const auto sent = BothBackends::Get(from).NewRecords(*source.cache, source_pages, 1);
    const auto received = BothBackends::Get(to).NewRecords(*target.cache, target_pages, 1);
    for (const StreamLayout& stream : source.cache->geometry().layout().streams) {
      for (uint32_t layer = 0; layer < stream.layers; ++layer) {
        const RecordRange range{stream.stream, layer, LiveRecords(stream.stream, kPrompt)};
        std::vector<std::byte> bytes(static_cast<size_t>(range.indices.size()) *
                                     stream.record_bytes);
        sent->Gather(range, bytes);
        received->Scatter(range, bytes);
      }
    }
    ExpectClose(target.Run(tokens_, kPrompt, kTokens, 1), kPrompt, std::string(from) + " to " + to);
  }
}

TEST_F(CudaModelTest, DraftsAsTheCpuDoes) {
  std::vector<std::vector<float>> logits;
  for (const char* name : {"cpu", "cuda"}) {
    Place place(name);
    const SequenceChunk chunk{
        .tokens = std::span(tokens_).first(300), .start = 0, .pages = place.pages, .slot = 1};
    const std::span<const BFloat16> streams =
        place.model.Forward({&chunk, 1}, *place.cache).streams;
    const std::vector<BFloat16> copied(streams.begin(), streams.end());
    const MtpChunk mtp{.next_tokens = std::span(tokens_).subspan(1, 300),
                       .streams = copied,
                       .start = 0,
                       .slot = 1,
                       .wants_logits = true,
                       .wants_streams = true};
    const ForwardResult result = place.model.ForwardMtp({&mtp, 1}, *place.cache);
    EXPECT_EQ(result.streams.size(), copied.size());
    logits.emplace_back(result.logits.begin(), result.logits.end());
  }
  const int64_t vocab = BothBackends::SharedCheckpoint().config().vocab_size;
  const LogitsRows expected = SplitRows(logits[0], vocab);
  const LogitsRows actual = SplitRows(logits[1], vocab);
  ASSERT_EQ(actual.size(), expected.size());
  std::vector<double> ratios;
  for (size_t row = 0; row < actual.size(); ++row) {
    ratios.push_back(Ratio(actual[row], expected[row]));
  }
  EXPECT_LT(Median(ratios), 0.18);
}

}  // namespace
}  // namespace baton::engine
