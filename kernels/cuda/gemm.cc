#include "kernels/cuda/gemm.h"

#include <type_traits>
#include <utility>

#include "common/base/check.h"
#include "kernels/cuda/gemm_small.h"

namespace baton::kernels::cuda {

namespace {

template <typename Y>
void CheckOutput(const MatrixView<Y>& y, LtMatmul::Output output, int64_t rows, int64_t n) {
  BATON_CHECK((output == LtMatmul::Output::kF32) == (std::is_same_v<Y, float>))
      << "the layer was made for the other type of output";
  BATON_CHECK(y.rows == rows && y.cols == n)
      << "y [" << y.rows << ", " << y.cols << "], wanted [" << rows << ", " << n << "]";
}

}  // namespace

Linear::Linear(int64_t n, int64_t k, DeviceWeights weights, const Options& options)
    : n_(n),
      k_(k),
      output_(options.output),
      weights_(std::move(weights)),
      matmul_({.input = is_fp8() ? LtMatmul::Input::kFp8Blocks : LtMatmul::Input::kBf16,
               .output = options.output,
               .n = n,
               .k = k,
               .max_rows = options.max_rows}) {}

std::optional<Linear> Linear::FromBf16(MatrixView<const BFloat16> w, const Options& options) {
  auto weights = UploadBf16(w);
  if (!weights) return std::nullopt;
  return Linear(w.rows, w.cols, std::move(*weights), options);
}

std::optional<Linear> Linear::FromFp8(MatrixView<const uint8_t> codes,
                                      MatrixView<const uint8_t> scales, const Options& options) {
  auto weights = UploadFp8(codes, scales);
  if (!weights) return std::nullopt;
  return Linear(codes.rows, codes.cols, std::move(*weights), options);
}

template <typename Y>
void Linear::RunBf16(MatrixView<const BFloat16> x, MatrixView<Y> y, std::byte* workspace,
                     CUstream_st* stream) const {
  BATON_CHECK(!is_fp8() && x.cols == k_ && x.stride % 8 == 0)
      << "x [" << x.rows << ", " << x.cols << "], stride " << x.stride << ", k " << k_;
  CheckOutput(y, output_, x.rows, n_);
  if (PrefersSmallGemm(x.rows, n_)) {
    SmallGemm({.y_format = std::is_same_v<Y, float> ? SmallGemmParams::Format::kF32
                                                    : SmallGemmParams::Format::kBf16,
               .rows = static_cast<int>(x.rows),
               .n = n_,
               .k = k_,
               .w = weights_.values.data(),
               .x = x.data,
               .x_stride = x.stride,
               .y = y.data,
               .y_stride = y.stride},
              stream);
    return;
  }
  matmul_.Run({.rows = LtMatmul::RoundUpRows(x.rows),
               .w = weights_.values.data(),
               .x = x.data,
               .x_stride = x.stride,
               .y = y.data,
               .y_stride = y.stride,
               .workspace = workspace},
              stream);
}

template <typename Y>
void Linear::RunFp8(const Fp8Rows& x, MatrixView<Y> y, std::byte* workspace,
                    CUstream_st* stream) const {
  BATON_CHECK(is_fp8() && x.cols == k_ && x.stride % 16 == 0 &&
              x.scale_stride == LtMatmul::RoundUpRows(x.rows))
      << "x [" << x.rows << ", " << x.cols << "], stride " << x.stride << ", scale stride "
      << x.scale_stride << ", k " << k_;
  CheckOutput(y, output_, x.rows, n_);
  if (PrefersSmallGemm(x.rows, n_)) {
    SmallGemm({.w_format = SmallGemmParams::Format::kFp8,
               .x_format = SmallGemmParams::Format::kFp8,
               .y_format = std::is_same_v<Y, float> ? SmallGemmParams::Format::kF32
                                                    : SmallGemmParams::Format::kBf16,
               .rows = static_cast<int>(x.rows),
               .n = n_,
               .k = k_,
               .w = weights_.values.data(),
               .w_scales = weights_.scales.As<float>(),
               .w_scale_stride = LtMatmul::ScaleColumns(k_),
               .x = x.codes,
               .x_stride = x.stride,
               .x_scales = x.scales,
               .x_scale_stride = x.scale_stride,
               .y = y.data,
               .y_stride = y.stride},
              stream);
    return;
  }
  matmul_.Run({.rows = x.scale_stride,
               .w = weights_.values.data(),
               .w_scales = weights_.scales.As<float>(),
               .x = x.codes,
               .x_stride = x.stride,
               .x_scales = x.scales,
               .y = y.data,
               .y_stride = y.stride,
               .workspace = workspace},
              stream);
}

void Linear::Run(MatrixView<const BFloat16> x, MatrixView<BFloat16> y, std::byte* workspace,
                 CUstream_st* stream) const {
  RunBf16(x, y, workspace, stream);
}
void Linear::Run(MatrixView<const BFloat16> x, MatrixView<float> y, std::byte* workspace,
                 CUstream_st* stream) const {
  RunBf16(x, y, workspace, stream);
}
void Linear::Run(const Fp8Rows& x, MatrixView<BFloat16> y, std::byte* workspace,
                 CUstream_st* stream) const {
  RunFp8(x, y, workspace, stream);
}
void Linear::Run(const Fp8Rows& x, MatrixView<float> y, std::byte* workspace,
                 CUstream_st* stream) const {
  RunFp8(x, y, workspace, stream);
}

}  // namespace baton::kernels::cuda
