#include "kernels/cuda/gemm.h"

#include <tuple>

#include "kernels/cuda/gemm_small.h"
#include "kernels/cuda/variants.h"
#include "kernels/gemm.h"
#include "tests/kernels/cuda/fp8_support.h"

namespace baton::kernels::cuda {
namespace {

constexpr int64_t kMaxRows = 1024;

DeviceArray<std::byte>& Workspace() {
  static DeviceArray<std::byte> workspace(LtMatmul::kWorkspaceBytes);
  return workspace;
}

template <typename Y>
constexpr LtMatmul::Output kOutput = sizeof(Y) == 4 ? LtMatmul::Output::kF32
                                                    : LtMatmul::Output::kBf16;

// The first `rows` rows of x W^T on the device, from a result with room for the padding.
template <typename Y, typename X>
std::vector<Y> RunLinear(const Linear& linear, const X& x, int64_t rows) {
  DeviceArray<Y> y(LtMatmul::RoundUpRows(rows) * linear.n());
  linear.Run(x, MatrixView<Y>(y.get(), rows, linear.n()), Workspace().get(), TestStream().get());
  return y.Download(0, rows * linear.n());
}

template <typename Y>
std::vector<Y> Reference(const std::vector<BFloat16>& x, const std::vector<BFloat16>& w,
                         int64_t rows, int64_t n, int64_t k) {
  std::vector<Y> y(rows * n);
  kernels::Gemm(View(x, rows, k), PackedMatrix::FromRows(View(w, n, k)), View(y, rows, n),
                TestPool());
  return y;
}

class LinearTest : public CudaTest {};

class LinearShapeTest : public CudaTest,
                        public testing::WithParamInterface<std::tuple<int, int, int>> {};

TEST_P(LinearShapeTest, Bf16MatchesTheReference) {
  const auto [rows, n, k] = GetParam();
  const auto x = RandomWithOutliers<BFloat16>(int64_t{rows} * k, 1);
  const auto w = RandomValues<BFloat16>(int64_t{n} * k, 2, 0.05f);
  std::vector<BFloat16> padded = x;
  padded.resize(LtMatmul::RoundUpRows(rows) * k, BFloat16(NAN));  // must not spread
  const DeviceArray<BFloat16> device_x(padded);
  const MatrixView<const BFloat16> view(device_x.get(), rows, k);

  const auto f32 = Linear::FromBf16(View(w, n, k), {LtMatmul::Output::kF32, kMaxRows});
  ASSERT_TRUE(f32);
  // Only the order of the FP32 sum differs, and that the tensor cores cut where they add.
  EXPECT_LE(RelativeError(RunLinear<float>(*f32, view, rows), Reference<float>(x, w, rows, n, k)),
            2e-5);
  const auto bf16 = Linear::FromBf16(View(w, n, k), {LtMatmul::Output::kBf16, kMaxRows});
  ASSERT_TRUE(bf16);
  EXPECT_LE(
      RelativeError(RunLinear<BFloat16>(*bf16, view, rows), Reference<BFloat16>(x, w, rows, n, k)),
      1e-3);
}

TEST_P(LinearShapeTest, Fp8MatchesTheReference) {
  const auto [rows, n, k] = GetParam();
  if (n % 16 != 0) GTEST_SKIP() << "FP8 layers are wider";
  const TestFp8Rows x(RandomWithOutliers<BFloat16>(int64_t{rows} * k, 3), rows, k);
  const TestFp8Weight w(n, k, 4);
  // Tensor cores add FP8 products at a precision of 2^-14 or so.
  const double bound = !HasSm90a() && PrefersSmallGemm(rows, n) ? 2e-6 : 5e-4;
  const auto scales = View(w.scales, (n + 127) / 128, k / 128);

  const auto f32 = Linear::FromFp8(View(w.codes, n, k), scales, {LtMatmul::Output::kF32, kMaxRows});
  ASSERT_TRUE(f32);
  EXPECT_LE(RelativeError(RunLinear<float>(*f32, x.view(), rows),
                          Reference<float>(x.values, w.values, rows, n, k)),
            bound);
  const auto bf16 =
      Linear::FromFp8(View(w.codes, n, k), scales, {LtMatmul::Output::kBf16, kMaxRows});
  ASSERT_TRUE(bf16);
  EXPECT_LE(RelativeError(RunLinear<BFloat16>(*bf16, x.view(), rows),
                          Reference<BFloat16>(x.values, w.values, rows, n, k)),
            bound + 1e-3);
}

INSTANTIATE_TEST_SUITE_P(Shapes, LinearShapeTest,
                         testing::Values(std::tuple{0, 128, 128}, std::tuple{1, 8, 256},
                                         std::tuple{1, 128, 128}, std::tuple{2, 512, 1024},
                                         std::tuple{7, 64, 4096}, std::tuple{8, 1536, 4096},
                                         std::tuple{9, 256, 256}, std::tuple{16, 1024, 1536},
                                         std::tuple{17, 128, 128}, std::tuple{31, 640, 256},
                                         std::tuple{33, 256, 7168}, std::tuple{64, 384, 1536},
                                         std::tuple{129, 1024, 2048}, std::tuple{1000, 256, 384}));

// Rows alone and among others, on both sides of every border between kernels and algorithms.
constexpr int64_t kRowCounts[] = {1, 2, 7, 9, 32, 33, 64, 65, 128, 200, 300, 513};

TEST_F(LinearTest, RowsDoNotDependOnTheBatch) {
  if (!HasSm90a()) GTEST_SKIP() << "sums of the portable variant have another order";
  for (const auto& [n, k] : {std::pair{64, 4096}, std::pair{256, 7168}, std::pair{272, 2048},
                             std::pair{1024, 4096}, std::pair{4096, 1536}, std::pair{4096, 8192}}) {
    const TestFp8Weight w(n, k, 5);
    const auto scales = View(w.scales, (n + 127) / 128, k / 128);
    const auto fp8 = Linear::FromFp8(View(w.codes, n, k), scales, {.max_rows = kMaxRows});
    const auto bf16 = Linear::FromBf16(View(w.values, n, k), {.max_rows = kMaxRows});
    ASSERT_TRUE(fp8 && bf16);
    const auto values = RandomWithOutliers<BFloat16>(kMaxRows * k, 6);
    const DeviceArray<BFloat16> device_values(values);
    const auto run_bf16 = [&](int64_t rows) {
      return RunLinear<BFloat16>(
          *bf16, MatrixView<const BFloat16>(device_values.get(), rows, int64_t{k}), rows);
    };
    const auto run_fp8 = [&](int64_t rows) {
      const std::vector<BFloat16> some(values.begin(), values.begin() + rows * k);
      return RunLinear<BFloat16>(*fp8, TestFp8Rows(some, rows, k).view(), rows);
    };
    const auto all_bf16 = run_bf16(kMaxRows);
    const auto all_fp8 = run_fp8(kMaxRows);
    for (const int64_t rows : kRowCounts) {
      const auto first = [rows, n = n](const std::vector<BFloat16>& all) {
        return std::vector<BFloat16>(all.begin(), all.begin() + rows * n);
      };
      EXPECT_EQ(CountDifferent(run_bf16(rows), first(all_bf16)), 0)
          << "BF16 [" << n << ", " << k << "], " << rows << " rows";
      EXPECT_EQ(CountDifferent(run_fp8(rows), first(all_fp8)), 0)
          << "FP8 [" << n << ", " << k << "], " << rows << " rows";
    }
  }
}

TEST_F(LinearTest, LinearWritesOnlyItsColumnsAndShowsNaN) {
  const int64_t rows = 5, n = 24, k = 128, stride = 64;
  auto x = RandomValues<BFloat16>(rows * k, 7);
  x[2 * k + 77] = BFloat16(NAN);
  const auto w = RandomValues<BFloat16>(n * k, 8);
  const DeviceArray<BFloat16> device_x(x);
  const auto linear = Linear::FromBf16(View(w, n, k), {LtMatmul::Output::kF32, 16});
  ASSERT_TRUE(linear);
  DeviceArray<float> y(std::vector<float>(rows * stride, 99.0f));
  linear->Run(MatrixView<const BFloat16>(device_x.get(), rows, k),
              MatrixView<float>(y.get() + 8, rows, n, stride), Workspace().get(),
              TestStream().get());
  const auto actual = y.Download();
  for (int64_t i = 0; i < rows * stride; ++i) {
    const bool inside = i % stride >= 8 && i % stride < 8 + n;
    EXPECT_EQ(std::isnan(actual[i]), inside && i / stride == 2) << i;
    if (inside) continue;
    EXPECT_EQ(actual[i], 99.0f) << i;
  }
}

}  // namespace
}  // namespace baton::kernels::cuda
