#pragma once

#include "common/base/bf16.h"
#include "kernels/matrix.h"

namespace baton::kernels {

// Input streams of the multi-token-prediction block: X0[t, j] = bf16(e[t] + h[t, j]).
// e [rows, D] (projected embedding), h [rows, streams * D] (projected streams), in place on h.
void AddEmbeddingToStreams(MatrixView<const BFloat16> e, MatrixView<BFloat16> h);

}  // namespace baton::kernels
