#include "kernels/cuda/quantize.h"
#include "kernels/cuda/rms_norm.h"
#include "kernels/cuda/rope.h"
#include "kernels/cuda/window_kv.h"
#include "kernels/quantize.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/window_kv.h"
#include "tests/kernels/cuda/support.h"

namespace baton::kernels::cuda {
namespace {

const RopeTable& Table() {
  static const RopeTable table({.theta = 160000, .factor = 16});
  return table;
}

std::vector<float> CpuRope(const std::vector<int64_t>& positions) {
  std::vector<float> rope(positions.size() * kRopeDim);
  Table().Fill(positions, View(rope, static_cast<int64_t>(positions.size()), kRopeDim));
  return rope;
}

class RopeTest : public CudaTest {};

TEST_F(RopeTest, AnglesOfPositionsUpToAMillionAreTheCpus) {
  std::vector<int32_t> positions = {0, 1, 127, 128, 65535, 65536, 999'999, 1'048'575};
  for (int i = 0; i < 500; ++i) positions.push_back(i * 2097);
  const DeviceArray<int32_t> device_positions(positions);
  const auto rows = static_cast<int64_t>(positions.size());
  DeviceArray<float> rope(rows * kRopeDim);
  FillRope(FrequenciesOf(Table()), device_positions.get(), rows, rope.get(), TestStream().get());
  EXPECT_EQ(CountDifferent(rope.Download(), CpuRope({positions.begin(), positions.end()})), 0);
}

TEST_F(RopeTest, TableHoldsTheFirstPositionOfEveryEntry) {
  constexpr int kRatio = 128;
  DeviceArray<float> rope(300 * kRopeDim);
  FillRopeTable(FrequenciesOf(Table()), kRatio, 300, rope.get(), TestStream().get());
  std::vector<int64_t> positions;
  for (int i = 0; i < 300; ++i) positions.push_back(i * kRatio);
  EXPECT_EQ(CountDifferent(rope.Download(), CpuRope(positions)), 0);
}

TEST_F(RopeTest, QueryNormRopeAndInverseGiveTheCpusBits) {
  for (const int heads : {1, 4, 5, 64}) {
    for (const int64_t rows : {0, 1, 3, 33}) {
      constexpr int64_t kPad = 64;  // columns between rows that belong to somebody else
      const int64_t stride = heads * 512 + kPad;
      auto q = RandomWithOutliers<BFloat16>(rows * stride, heads);
      std::vector<int64_t> positions;
      for (int64_t i = 0; i < rows; ++i) positions.push_back(i * 31'337);
      const auto rope = CpuRope(positions);
      const DeviceArray<BFloat16> device_q(q);
      const DeviceArray<float> device_rope(rope);
      const MatrixView<BFloat16> view(device_q.get(), rows, heads * 512, stride);
      const MatrixView<BFloat16> host(q.data(), rows, heads * 512, stride);
      QueryNormRope({.q = view, .heads = heads, .rope = device_rope.get()}, TestStream().get());
      kernels::QueryNormRope({.q = host, .heads = heads, .rope = View(rope, rows, kRopeDim)},
                             TestPool());
      EXPECT_EQ(CountDifferent(device_q.Download(), q), 0) << heads << " heads, " << rows;
      InverseRope(view, heads, device_rope.get(), TestStream().get());
      kernels::InverseRope(host, heads, View(rope, rows, kRopeDim), TestPool());
      EXPECT_EQ(CountDifferent(device_q.Download(), q), 0) << heads << " heads, " << rows;
    }
  }
}

// 65,536 tokens x 64 heads x 512 channels are 2^31 elements, 2^32 bytes.
TEST_F(RopeTest, RowsBeyondTwoToTheThirtyOneElements) {
  constexpr int64_t kRows = 65'537;
  constexpr int kHeads = 64;
  constexpr int64_t kWidth = kHeads * 512;
  DeviceArray<BFloat16> device_q(kRows * kWidth);
  auto last = RandomValues<BFloat16>(kWidth, 3);
  CopyAsync(device_q.get() + (kRows - 1) * kWidth, last.data(), kWidth * 2, TestStream().get());
  DeviceArray<float> device_rope(kRows * kRopeDim);
  FillRopeTable(FrequenciesOf(Table()), 1, kRows, device_rope.get(), TestStream().get());
  const MatrixView<BFloat16> view(device_q.get(), kRows, kWidth);
  QueryNormRope({.q = view, .heads = kHeads, .rope = device_rope.get()}, TestStream().get());
  const auto rope = CpuRope({kRows - 1});
  kernels::QueryNormRope(
      {.q = View(last, 1, kWidth), .heads = kHeads, .rope = View(rope, 1, kRopeDim)}, TestPool());
  EXPECT_EQ(CountDifferent(device_q.Download((kRows - 1) * kWidth, kWidth), last), 0);
  InverseRope(view, kHeads, device_rope.get(), TestStream().get());
  kernels::InverseRope(View(last, 1, kWidth), kHeads, View(rope, 1, kRopeDim), TestPool());
  EXPECT_EQ(CountDifferent(device_q.Download((kRows - 1) * kWidth, kWidth), last), 0);
}

class WindowKvTest : public CudaTest, public testing::WithParamInterface<Numerics> {
 protected:
  static constexpr int kDim = 512;
  static constexpr int kRing = 136;
  static constexpr int kSlots = 4;

  // With `fused` the ring is written by the same launch.
  static void Check(const std::vector<TestBatch::Sequence>& sequences, int padding, bool fused) {
    const TestBatch batch(sequences, padding);
    const int rows = batch.view().rows;
    auto kv = RandomWithOutliers<BFloat16>(int64_t{rows} * kDim, 21);
    auto rings = RandomValues<BFloat16>(int64_t{kSlots} * kRing * kDim, 22);
    const auto weight = RandomValues<BFloat16>(kDim, 23);
    const auto rope = CpuRope({batch.positions().begin(), batch.positions().end()});
    const DeviceArray<BFloat16> device_kv(kv), device_rings(rings), device_weight(weight);
    const DeviceArray<float> device_rope(rope);
    const SlotRings<BFloat16> ring = {.data = device_rings.get(),
                                      .rows = kRing,
                                      .width = kDim,
                                      .slot_stride = int64_t{kRing} * kDim};
    const MatrixView<BFloat16> view(device_kv.get(), rows, kDim);
    WindowKv({.batch = batch.view(),
              .kv = view,
              .weight = device_weight.get(),
              .rope = device_rope.get(),
              .numerics = GetParam(),
              .ring = fused ? ring : SlotRings<BFloat16>{}},
             TestStream().get());
    if (!fused) WriteRings(batch.view(), view, ring, TestStream().get());

    int64_t row = 0;
    for (const auto& s : sequences) {
      const MatrixView<BFloat16> chunk(kv.data() + row * kDim, s.rows, kDim);
      kernels::WindowKv({.kv = chunk,
                         .weight = Floats(weight),
                         .rope = View(rope, rows, kRopeDim).Rows(row, s.rows),
                         .numerics = GetParam()},
                        TestPool());
      kernels::WriteRows(chunk, s.start,
                         {rings.data() + int64_t{s.slot} * kRing * kDim, kRing, kDim});
      row += s.rows;
    }
    EXPECT_EQ(CountDifferent(device_kv.Download(), kv), 0);
    EXPECT_EQ(CountDifferent(device_rings.Download(), rings), 0);
  }
};

TEST_P(WindowKvTest, DecodingRowsGoToTheirRingsAtOnce) {
  Check({{.start = 0, .rows = 1, .slot = 3},
         {.start = 135, .rows = 1, .slot = 0},
         {.start = 0, .rows = 0, .slot = 2},
         {.start = 1000, .rows = 8, .slot = 1}},
        3, /*fused=*/true);
}

TEST_P(WindowKvTest, ChunksAreWrittenAfterwardsAndOnlyTheirLastRows) {
  Check({{.start = 5, .rows = 400, .slot = 2}, {.start = 77, .rows = 60, .slot = 0}}, 1,
        /*fused=*/false);
}

INSTANTIATE_TEST_SUITE_P(All, WindowKvTest,
                         testing::Values(Numerics::kReference, Numerics::kExact));

TEST(WindowKvDeathTest, RingThatWouldLoseTheWindowIsRefused) {
  WindowKvParams params;
  params.batch = {.rows = 10, .sequences = 1, .max_rows = 10};
  params.kv = {nullptr, 10, 512};
  BFloat16 somewhere;
  params.ring = {.data = &somewhere, .rows = 136, .width = 512};
  EXPECT_DEATH(WindowKv(params, nullptr), "10 rows a sequence would overwrite a window of 128");
}

// What the FP8 codes and scales stand for.
std::vector<BFloat16> Dequantized(const std::vector<uint8_t>& codes,
                                  const std::vector<float>& scales, int64_t rows, int64_t cols,
                                  int64_t scale_stride) {
  std::vector<BFloat16> values(rows * cols);
  for (int64_t i = 0; i < rows * cols; ++i) {
    const float scale = scales[i % cols / 128 * scale_stride + i / cols];
    values[i] = BFloat16(DecodeE4m3(codes[i]) * scale);
  }
  return values;
}

class RmsNormTest : public CudaTest {};

TEST_F(RmsNormTest, MatchesTheCpuAtTheWidthsOfAllModels) {
  for (const int64_t n : {8, 256, 512, 1024, 1536, 2048, 4096, 7168, 8192}) {
    for (const int64_t rows : {1, 7, 65}) {
      const int64_t stride = n + 16;
      const auto x = RandomWithOutliers<BFloat16>(rows * stride, static_cast<uint32_t>(n));
      const auto weight = RandomValues<BFloat16>(n, 2);
      const bool quantized = n % 128 == 0;
      const int64_t scale_stride = rows + 3;
      const DeviceArray<BFloat16> device_x(x), device_weight(weight);
      DeviceArray<BFloat16> device_y(rows * n);
      DeviceArray<uint8_t> codes(rows * n);
      DeviceArray<float> scales(n / 128 * scale_stride);
      RmsNormParams params = {.x = {device_x.get(), rows, n, stride},
                              .weight = device_weight.get(),
                              .y = {device_y.get(), rows, n}};
      if (quantized) {
        params.quantized = {codes.get(), scales.get(), rows, n, n, scale_stride};
      }
      RmsNorm(params, TestStream().get());
      const std::vector<BFloat16> y = device_y.Download();

      std::vector<BFloat16> expected(rows * n), expected_quantized(rows * n);
      if (n % 16 == 0) {
        kernels::RmsNorm({.x = {x.data(), rows, n, stride},
                          .weight = Floats(weight),
                          .y = View(expected, rows, n)},
                         TestPool());
        EXPECT_LT(RelativeError(y, expected), 1e-4) << n;
        EXPECT_LE(CountDifferent(y, expected), rows * n / 200) << n;
      } else {
        for (const BFloat16 value : y) ASSERT_FALSE(std::isnan(static_cast<float>(value)));
      }
      if (!quantized) continue;
      QuantizeActivations(View(y, rows, n), View(expected_quantized, rows, n), TestPool());
      EXPECT_EQ(
          CountDifferent(Dequantized(codes.Download(), scales.Download(), rows, n, scale_stride),
                         expected_quantized),
          0)
          << n;
    }
  }
}

TEST_F(RmsNormTest, InPlaceAndWithoutPlainOutput) {
  constexpr int64_t kRows = 9;
  constexpr int64_t kWidth = 4096;
  const auto x = RandomValues<BFloat16>(kRows * kWidth, 4);
  const DeviceArray<BFloat16> in(x), in_place(x), weight(RandomValues<BFloat16>(kWidth, 5));
  DeviceArray<uint8_t> codes(kRows * kWidth);
  DeviceArray<float> scales(kWidth / 128 * kRows);
  RmsNorm({.x = {in.get(), kRows, kWidth},
           .weight = weight.get(),
           .quantized = {codes.get(), scales.get(), kRows, kWidth, kWidth, kRows}},
          TestStream().get());
  RmsNorm({.x = {in_place.get(), kRows, kWidth},
           .weight = weight.get(),
           .y = {in_place.get(), kRows, kWidth}},
          TestStream().get());
  std::vector<BFloat16> expected(kRows * kWidth);
  QuantizeActivations(View(in_place.Download(), kRows, kWidth), View(expected, kRows, kWidth),
                      TestPool());
  EXPECT_EQ(CountDifferent(Dequantized(codes.Download(), scales.Download(), kRows, kWidth, kRows),
                           expected),
            0);
  EXPECT_EQ(CountDifferent(in.Download(), x), 0);
}

TEST_F(RmsNormTest, NanShowsInItsRowAlone) {
  constexpr int64_t kWidth = 7168;
  auto x = RandomValues<BFloat16>(3 * kWidth, 4);
  x[kWidth + 5] = BFloat16(std::numeric_limits<float>::quiet_NaN());
  const DeviceArray<BFloat16> in(x), weight(RandomValues<BFloat16>(kWidth, 5));
  DeviceArray<BFloat16> out(3 * kWidth);
  RmsNorm({.x = {in.get(), 3, kWidth}, .weight = weight.get(), .y = {out.get(), 3, kWidth}},
          TestStream().get());
  const std::vector<float> y = Floats(out.Download());
  for (int64_t i = 0; i < 3 * kWidth; ++i) ASSERT_EQ(std::isnan(y[i]), i / kWidth == 1) << i;
}

class QuantizeTest : public CudaTest {};

TEST_F(QuantizeTest, CodesTimesScalesAreTheCpusValues) {
  for (const int64_t n : {128, 256, 4096}) {
    for (const int64_t rows : {1, 5, 130}) {
      const int64_t stride = n + 8;
      auto x = RandomWithOutliers<BFloat16>(rows * stride, 6);
      for (int64_t i = 0; i < 128; ++i) x[i] = BFloat16(i % 2 == 0 ? 0.0f : -0.0f);
      const DeviceArray<BFloat16> device_x(x);
      DeviceArray<uint8_t> codes(rows * n);
      DeviceArray<float> scales(n / 128 * rows);
      Quantize({device_x.get(), rows, n, stride}, {codes.get(), scales.get(), rows, n, n, rows},
               TestStream().get());
      std::vector<BFloat16> expected(rows * n);
      QuantizeActivations({x.data(), rows, n, stride}, View(expected, rows, n), TestPool());
      EXPECT_EQ(
          CountDifferent(Dequantized(codes.Download(), scales.Download(), rows, n, rows), expected),
          0);
    }
  }
}

// Every BF16 magnitude as the largest of a group, so that every scale and rounding occurs.
TEST_F(QuantizeTest, EveryMagnitudeIsScaledAsOnTheCpu) {
  std::vector<BFloat16> x;
  for (uint32_t bits = 0; bits < 0x7f00; ++bits) {
    for (uint32_t i = 0; i < 128; ++i) {
      x.push_back(BFloat16::FromBits(static_cast<uint16_t>(bits - std::min(bits, 7 * i))));
    }
  }
  const auto rows = static_cast<int64_t>(x.size() / 128);
  const DeviceArray<BFloat16> device_x(x);
  DeviceArray<uint8_t> codes(rows * 128);
  DeviceArray<float> scales(rows);
  Quantize({device_x.get(), rows, 128}, {codes.get(), scales.get(), rows, 128, 128, rows},
           TestStream().get());
  std::vector<BFloat16> expected(rows * 128);
  QuantizeActivations(View(x, rows, 128), View(expected, rows, 128), TestPool());
  EXPECT_EQ(
      CountDifferent(Dequantized(codes.Download(), scales.Download(), rows, 128, rows), expected),
      0);
}

}  // namespace
}  // namespace baton::kernels::cuda
