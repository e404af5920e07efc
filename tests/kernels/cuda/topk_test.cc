#include "kernels/cuda/topk.h"

#include <cmath>
#include <limits>

#include "kernels/index_select.h"
#include "tests/kernels/cuda/support.h"

namespace baton::kernels::cuda {
namespace {

class TopKTest : public CudaTest {};

// Row i has lengths[i] scores of `scores` [rows, stride]; entries beyond are NaN and must not
// count.
void ExpectExact(const std::vector<int32_t>& lengths, int64_t stride, int k,
                 const std::vector<float>& scores) {
  std::vector<TestBatch::Sequence> sequences;
  for (const int32_t length : lengths) sequences.push_back({.start = 4 * length, .rows = 1});
  TestBatch batch(sequences, 1);
  const int rows = batch.view().rows;
  DeviceArray<float> device_scores(rows * stride);
  CopyAsync(device_scores.get(), scores.data(), scores.size() * sizeof(float), TestStream().get());
  DeviceArray<int32_t> selected(int64_t{rows} * k);
  cuda::TopK({.batch = batch.view(),
              .first_row = 0,
              .rows = rows,
              .scores = device_scores.get(),
              .stride = stride,
              .max_entries = static_cast<int>(stride),
              .selected = selected.get(),
              .k = k},
             TestStream().get());
  const std::vector<int32_t> actual = selected.Download();
  for (size_t row = 0; row < lengths.size(); ++row) {
    std::vector<int32_t> expected(k);
    kernels::TopK({scores.data() + row * stride, static_cast<size_t>(lengths[row])}, expected);
    const std::vector<int32_t> got(actual.begin() + row * k, actual.begin() + (row + 1) * k);
    EXPECT_EQ(CountDifferent(got, expected), 0) << "k " << k << ", length " << lengths[row];
  }
  const std::vector<int32_t> nothing(k, -1);
  EXPECT_EQ(std::vector<int32_t>(actual.end() - k, actual.end()), nothing);
}

TEST_F(TopKTest, RaggedLengths) {
  const std::vector<int32_t> lengths = {0, 1, 15, 16, 17, 511, 512, 513, 2047, 2048, 2049, 6001};
  constexpr int64_t kStride = 6004;
  const auto scores = RandomValues<float>(lengths.size() * kStride, 1);
  for (const int k : {1, 16, 512, 1024, 2048}) ExpectExact(lengths, kStride, k, scores);
}

TEST_F(TopKTest, ManyEqualScores) {
  const std::vector<int32_t> lengths = {600, 5000, 32768};
  auto scores = RandomValues<float>(3 * 32768, 2);
  for (float& score : scores) score = std::round(score);
  for (const int k : {1, 512, 2048}) ExpectExact(lengths, 32768, k, scores);
  std::fill(scores.begin(), scores.end(), -7.0f);
  ExpectExact(lengths, 32768, 512, scores);
  for (size_t i = 0; i < scores.size(); i += 2) scores[i] = i % 4 == 0 ? 0.0f : -0.0f;
  ExpectExact(lengths, 32768, 512, scores);
}

TEST_F(TopKTest, ScoresThatDifferInTheLastBits) {
  std::vector<float> scores(20000);
  std::mt19937 engine(3);
  for (float& score : scores) {
    score = std::bit_cast<float>(0x42480000u + static_cast<uint32_t>(engine() % 30000));
  }
  for (const int k : {100, 2048}) ExpectExact({20000}, 20000, k, scores);
}

TEST_F(TopKTest, NaNAndInfinitiesRankAsOnTheCpu) {
  auto scores = RandomValues<float>(4096, 4);
  for (size_t i = 0; i < scores.size(); ++i) {
    if (i % 3 != 0) scores[i] = i % 2 == 0 ? std::nanf("") : -std::nanf("");
    if (i % 7 == 0) scores[i] = -std::numeric_limits<float>::infinity();
    if (i % 97 == 0) scores[i] = std::numeric_limits<float>::infinity();
  }
  for (const int k : {10, 512, 2048})
    ExpectExact({4096, 3000}, 2048 * 2, k, [&] {
      std::vector<float> two = scores;
      two.insert(two.end(), scores.begin(), scores.end());
      return two;
    }());
}

TEST_F(TopKTest, AMillionScores) {
  const auto scores = RandomValues<float>(1 << 20, 5);
  for (const int k : {512, 2048}) ExpectExact({1 << 20}, 1 << 20, k, scores);
}

}  // namespace
}  // namespace baton::kernels::cuda
