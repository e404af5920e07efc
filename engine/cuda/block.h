#pragma once

#include "engine/cuda/pass_context.h"
#include "engine/cuda/weights.h"
#include "engine/model/layer_cache.h"
#include "kernels/matrix.h"

// A block of the model on the device: engine/model/block.h.

namespace baton::engine::cuda {

// In place on the rows' streams X [rows, streams * hidden]. Returns what the layer's indexer
// selected, valid until the next block; null unless CSA.
kernels::MatrixView<const int32_t> RunBlock(const LayerWeights& weights, const LayerCache& cache,
                                            int64_t slot_bytes,
                                            kernels::MatrixView<BFloat16> streams,
                                            const PassContext& context);

// Stores the window KV of the rows of a window layer and computes nothing else.
void StoreBlockWindow(const LayerWeights& weights, const LayerCache& cache, int64_t slot_bytes,
                      kernels::MatrixView<const BFloat16> streams, const PassContext& context);

// logits [streams.rows, vocab_size] from at most kMaxLogitsRows rows of streams.
void RunHead(const HeadWeights& weights, const Linear& lm_head,
             kernels::MatrixView<const BFloat16> streams, kernels::MatrixView<float> logits,
             const PassContext& context);

}  // namespace baton::engine::cuda
