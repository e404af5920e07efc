#pragma once

#include <cstdint>
#include <optional>

#include "common/base/bf16.h"
#include "kernels/cuda/fp8_rows.h"
#include "kernels/cuda/gemm_lt.h"
#include "kernels/cuda/gemm_weights.h"
#include "kernels/matrix.h"

struct CUstream_st;

namespace baton::kernels::cuda {

// A linear layer y = x W^T (kernels/gemm.h) whose weights are on the device, in the format of the
// checkpoint: BF16, or e4m3 with a scale per 128 x 128 block. Immutable; any thread may run it.
//
// Few rows go to SmallGemm, which is bound by reading W, more to cuBLASLt. With wgmma a row's bits
// do not depend on the batch; with mma.sync (variants.h) they may change where the number of rows
// crosses from one to the other.
//
// Differences from kernels/gemm.h: sums are in the order of the tensor cores; FP8 products are
// accumulated per block of 128 columns at the tensor cores' FP8 precision (about 14 bits), in FP32
// by SmallGemm with mma.sync.
class Linear {
 public:
  struct Options {
    LtMatmul::Output output = LtMatmul::Output::kBf16;
    int64_t max_rows = 0;  // of any call
  };
  // From host memory; returns when the copy is made. Null: no device memory left. n is a multiple
  // of 8 (of 16 for FP8), k of 128.
  static std::optional<Linear> FromBf16(MatrixView<const BFloat16> w, const Options& options);
  // scales are E8M0 bytes, [ceil(n / 128), k / 128].
  static std::optional<Linear> FromFp8(MatrixView<const uint8_t> codes,
                                       MatrixView<const uint8_t> scales, const Options& options);

  int64_t n() const { return n_; }
  int64_t k() const { return k_; }
  bool is_fp8() const { return weights_.is_fp8(); }

  // x and y must reach to LtMatmul::RoundUpRows(rows) rows; what the extra rows of y receive is
  // undefined. workspace: LtMatmul::kWorkspaceBytes that nobody else uses meanwhile. x is BF16 with
  // BF16 weights, Fp8Rows with FP8 ones; y has the type that Options::output says. Rows of x and y
  // are aligned to 16 bytes.
  void Run(MatrixView<const BFloat16> x, MatrixView<BFloat16> y, std::byte* workspace,
           CUstream_st* stream) const;
  void Run(MatrixView<const BFloat16> x, MatrixView<float> y, std::byte* workspace,
           CUstream_st* stream) const;
  void Run(const Fp8Rows& x, MatrixView<BFloat16> y, std::byte* workspace,
           CUstream_st* stream) const;
  void Run(const Fp8Rows& x, MatrixView<float> y, std::byte* workspace, CUstream_st* stream) const;

 private:
  Linear(int64_t n, int64_t k, DeviceWeights weights, const Options& options);
  template <typename Y>
  void RunBf16(MatrixView<const BFloat16> x, MatrixView<Y> y, std::byte* workspace,
               CUstream_st* stream) const;
  template <typename Y>
  void RunFp8(const Fp8Rows& x, MatrixView<Y> y, std::byte* workspace, CUstream_st* stream) const;

  int64_t n_ = 0;
  int64_t k_ = 0;
  LtMatmul::Output output_;
  DeviceWeights weights_;
  LtMatmul matmul_;
};

}  // namespace baton::kernels::cuda
