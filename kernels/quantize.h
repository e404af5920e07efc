#pragma once

#include "common/base/bf16.h"
#include "kernels/matrix.h"
#include "kernels/parallel.h"

namespace baton::kernels {

// The activations an FP8 or FP4 linear layer really sees: FakeQuantFp8 in groups of 128 columns.
// x, y [rows, n], n a multiple of 128; y may be x.
void QuantizeActivations(MatrixView<const BFloat16> x, MatrixView<BFloat16> y, ThreadPool& pool);

}  // namespace baton::kernels
