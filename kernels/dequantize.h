#pragma once

#include <cstdint>

#include "common/base/bf16.h"
#include "kernels/matrix.h"

// Checkpoint weights -> BF16. Exact: a code has at most 4 significant bits and scales are powers of
// two. Scale bytes are E8M0.

namespace baton::kernels {

// y[o, i] = e4m3(codes[o, i]) * scales[o / 128, i / 128];
// codes [out, in], scales [ceil(out / 128), ceil(in / 128)].
void DequantizeFp8Blocks(MatrixView<const uint8_t> codes, MatrixView<const uint8_t> scales,
                         MatrixView<BFloat16> y);

// y[o, i] = e2m1(nibble i of row o) * scales[o, i / 32]; packed [out, in / 2], the even column in
// the low nibble; scales [out, in / 32].
void DequantizeFp4Groups(MatrixView<const uint8_t> packed, MatrixView<const uint8_t> scales,
                         MatrixView<BFloat16> y);

}  // namespace baton::kernels
