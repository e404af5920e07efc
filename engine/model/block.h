#pragma once

#include "engine/model/attention_layer.h"
#include "engine/model/forward_context.h"
#include "engine/model/pass.h"
#include "engine/model/weights.h"
#include "kernels/matrix.h"

// A block of the model: attention, then experts, each between the streams' collapse and mixing.

namespace baton::engine {

// In place on the rows' streams X [pass.rows(), streams * hidden].
void RunBlock(const LayerWeights& weights, const LayerCache& cache, const Pass& pass,
              kernels::MatrixView<BFloat16> streams, ForwardContext& context);

// Stores the window KV of the rows of a window layer and computes nothing else.
void StoreBlockWindow(const LayerWeights& weights, const LayerCache& cache, const Pass& pass,
                      kernels::MatrixView<const BFloat16> streams, ForwardContext& context);

// logits [streams.rows, vocab_size] from the streams after the last layer.
void RunHead(const HeadWeights& weights, const kernels::PackedMatrix& lm_head,
             kernels::MatrixView<const BFloat16> streams, kernels::MatrixView<float> logits,
             ForwardContext& context);

}  // namespace baton::engine
