#pragma once

#include "engine/cuda/pass_context.h"
#include "engine/cuda/weights.h"
#include "kernels/matrix.h"

namespace baton::engine::cuda {

// output = mixture of experts of norm(x), both [rows, hidden]. Layers with a hash table route by
// the rows' token ids, the others by score.
void MoeLayer(const MoeWeights& weights, kernels::MatrixView<const BFloat16> x,
              kernels::MatrixView<BFloat16> output, const PassContext& context);

}  // namespace baton::engine::cuda
