#pragma once

#include <cstdint>

namespace baton::kernels::cuda {

// Activations as FP8 layers read them: what QuantizeActivations (kernels/quantize.h) makes of them,
// kept as codes and scales. Value (r, c) is e4m3(codes[r * stride + c]) *
// scales[c / 128 * scale_stride + r]: the scales of neighbouring rows are neighbours, which is what
// cuBLASLt wants. Its products work on whole groups of 16 rows, so codes and scales must be
// readable (whatever they hold) up to RoundUp(rows, 16), and scale_stride is just that.
template <typename Byte, typename Float>
struct BasicFp8Rows {
  Byte* codes = nullptr;    // [rows, cols], rows aligned to 16 bytes
  Float* scales = nullptr;  // [cols / 128, scale_stride], aligned to 16 bytes
  int64_t rows = 0;
  int64_t cols = 0;    // a multiple of 128
  int64_t stride = 0;  // bytes between rows, a multiple of 16
  int64_t scale_stride = 0;
};
using Fp8Rows = BasicFp8Rows<const uint8_t, const float>;
using MutableFp8Rows = BasicFp8Rows<uint8_t, float>;

inline Fp8Rows ReadOnly(const MutableFp8Rows& rows) {
  return {.codes = rows.codes,
          .scales = rows.scales,
          .rows = rows.rows,
          .cols = rows.cols,
          .stride = rows.stride,
          .scale_stride = rows.scale_stride};
}

}  // namespace baton::kernels::cuda
