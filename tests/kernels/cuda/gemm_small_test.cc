#include "kernels/cuda/gemm_small.h"

#include "kernels/cuda/gemm_lt.h"
#include "kernels/cuda/gemm_weights.h"
#include "kernels/cuda/variants.h"
#include "kernels/gemm.h"
#include "tests/kernels/cuda/fp8_support.h"

namespace baton::kernels::cuda {
namespace {

using Format = SmallGemmParams::Format;
using Variant = void (*)(const SmallGemmParams&, CUstream_st*);

class SmallGemmTest : public CudaTest, public testing::WithParamInterface<Variant> {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) return;
    if (GetParam() == SmallGemmSm90a && !HasSm90a()) GTEST_SKIP() << "no wgmma here";
  }
};

INSTANTIATE_TEST_SUITE_P(, SmallGemmTest, testing::Values(SmallGemmSm90a, SmallGemmPortable),
                         [](const auto& info) { return info.index == 0 ? "Sm90a" : "Portable"; });

// A layer in both formats, and activations for it.
struct Case {
  Case(int64_t rows, int64_t n, int64_t k)
      : rows(rows),
        n(n),
        k(k),
        weight(n, k, 1),
        fp8(*UploadFp8(View(weight.codes, n, k), View(weight.scales, (n + 127) / 128, k / 128))),
        bf16(*UploadBf16(View(weight.values, n, k))),
        x(RandomWithOutliers<BFloat16>(rows * k, 2)) {}

  // FP32 results of the first `count` rows.
  std::vector<float> Run(Variant variant, Format w_format, Format x_format, int64_t count) const {
    const std::vector<BFloat16> values(x.begin(), x.begin() + count * k);
    const TestFp8Rows codes(values, count, k);
    const DeviceArray<BFloat16> plain(values);
    const bool is_fp8 = x_format == Format::kFp8;
    DeviceArray<float> y(count * n);
    variant({.w_format = w_format,
             .x_format = x_format,
             .y_format = Format::kF32,
             .rows = static_cast<int>(count),
             .n = n,
             .k = k,
             .w = w_format == Format::kFp8 ? fp8.values.data() : bf16.values.data(),
             .w_scales = fp8.scales.As<float>(),
             .w_scale_stride = LtMatmul::ScaleColumns(k),
             .x = is_fp8 ? static_cast<const void*>(codes.codes.get()) : plain.get(),
             .x_stride = k,
             .x_scales = codes.scales.get(),
             .x_scale_stride = codes.view().scale_stride,
             .y = y.get(),
             .y_stride = n},
            TestStream().get());
    return y.Download();
  }
  std::vector<float> Expected(Format x_format) const {
    const std::vector<BFloat16> read =
        x_format == Format::kFp8 ? TestFp8Rows(x, rows, k).values : x;
    std::vector<float> y(rows * n);
    kernels::Gemm(View(read, rows, k), PackedMatrix::FromRows(View(weight.values, n, k)),
                  View(y, rows, n), TestPool());
    return y;
  }

  int64_t rows, n, k;
  TestFp8Weight weight;
  DeviceWeights fp8, bf16;
  std::vector<BFloat16> x;
};

constexpr std::pair<Format, Format> kFormats[] = {
    {Format::kBf16, Format::kBf16}, {Format::kFp8, Format::kFp8}, {Format::kFp8, Format::kBf16}};

// Panels of 16 and 32 rows with a rest, and of 64; sums of one chunk and of many.
TEST_P(SmallGemmTest, MatchesTheReference) {
  for (const auto& [rows, n, k] : {std::tuple{1, 16, 128}, std::tuple{9, 2320, 384},
                                   std::tuple{32, 272, 4096}, std::tuple{17, 10000, 256}}) {
    const Case c(rows, n, k);
    for (const auto& [w_format, x_format] : kFormats) {
      const bool adds_in_fp8 = x_format == Format::kFp8 && GetParam() == SmallGemmSm90a;
      EXPECT_LE(RelativeError(c.Run(GetParam(), w_format, x_format, rows), c.Expected(x_format)),
                adds_in_fp8 ? 5e-4 : 2e-5)
          << rows << " x [" << n << ", " << k << "], formats " << static_cast<int>(w_format) << ", "
          << static_cast<int>(x_format);
    }
  }
}

TEST_P(SmallGemmTest, RowsDoNotDependOnTheOthers) {
  const Case c(32, 272, 2048);
  for (const auto& [w_format, x_format] : kFormats) {
    const std::vector<float> all = c.Run(GetParam(), w_format, x_format, 32);
    for (const int64_t rows : {1, 5, 8, 9, 16, 17}) {
      EXPECT_EQ(CountDifferent(c.Run(GetParam(), w_format, x_format, rows),
                               {all.begin(), all.begin() + rows * c.n}),
                0)
          << rows;
    }
  }
}

}  // namespace
}  // namespace baton::kernels::cuda
