#pragma once

#include <cstdint>
#include <span>

#include "engine/model/forward_context.h"
#include "engine/model/weights.h"
#include "kernels/matrix.h"

namespace baton::engine {

// output = mixture of experts of norm(x), both [tokens.size(), hidden]. Layers with a hash table
// route by the rows' token ids, the others by score.
void MoeLayer(const MoeWeights& weights, std::span<const int32_t> tokens,
              kernels::MatrixView<const BFloat16> x, kernels::MatrixView<BFloat16> output,
              ForwardContext& context);

}  // namespace baton::engine
