#include "kernels/dequantize.h"

#include "common/base/check.h"
#include "kernels/numeric.h"

namespace baton::kernels {

void DequantizeFp8Blocks(MatrixView<const uint8_t> codes, MatrixView<const uint8_t> scales,
                         MatrixView<BFloat16> y) {
  constexpr int64_t kBlock = 128;
  BATON_CHECK(y.rows == codes.rows && y.cols == codes.cols);
  BATON_CHECK(scales.rows == (codes.rows + kBlock - 1) / kBlock &&
              scales.cols == (codes.cols + kBlock - 1) / kBlock);
  for (int64_t row = 0; row < codes.rows; ++row) {
    const uint8_t* row_scales = scales.Row(row / kBlock);
    for (int64_t col = 0; col < codes.cols; ++col) {
      y.Row(row)[col] =
          BFloat16(DecodeE4m3(codes.Row(row)[col]) * DecodeE8m0(row_scales[col / kBlock]));
    }
  }
}

void DequantizeFp4Groups(MatrixView<const uint8_t> packed, MatrixView<const uint8_t> scales,
                         MatrixView<BFloat16> y) {
  constexpr int64_t kGroup = 32;
  BATON_CHECK(y.rows == packed.rows && y.cols == 2 * packed.cols);
  BATON_CHECK(scales.rows == packed.rows && scales.cols * kGroup == y.cols);
  for (int64_t row = 0; row < packed.rows; ++row) {
    const uint8_t* bytes = packed.Row(row);
    for (int64_t col = 0; col < y.cols; ++col) {
      const uint8_t nibble = col % 2 == 0 ? bytes[col / 2] & 15 : bytes[col / 2] >> 4;
      y.Row(row)[col] = BFloat16(DecodeE2m1(nibble) * DecodeE8m0(scales.Row(row)[col / kGroup]));
    }
  }
}

}  // namespace baton::kernels
