#pragma once

#include "engine/cuda/pass_context.h"
#include "engine/cuda/weights.h"
#include "kernels/matrix.h"

namespace baton::engine::cuda {

// output = mixture of experts of norm(x), both [rows, hidden]. Layers with a hash table route by
// the rows' token ids, the others by score.
void MoeLayer(const MoeWeights& weights, kernels::MatrixView<const BFloat16> x,
              kernels::MatrixView<BFloat16> output, const PassContext& context);

// y of the slots that AssignSlots has left in the scratch memory, for the experts of the bank and
// their rows of x.
kernels::MatrixView<const BFloat16> RunExperts(const MoeWeights& weights, const ModelConfig& config,
                                               const kernels::cuda::Fp8Rows& x, CUstream_st* stream,
                                               const Scratch& scratch);

}  // namespace baton::engine::cuda
