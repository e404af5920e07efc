#include "engine/cuda/block.h"

#include "engine/cuda/attention_layer.h"
#include "engine/cuda/moe_layer.h"
#include "kernels/cuda/hyper_connection.h"
#include "kernels/cuda/rms_norm.h"

namespace baton::engine::cuda {
namespace {

using kernels::MatrixView;

// The input of a half of the block; the other outputs wait in the scratch memory for Mix.
MatrixView<BFloat16> Collapse(const HyperConnectionWeights& weights,
                              MatrixView<const BFloat16> streams, const Scratch::Half& half,
                              const PassContext& context) {
  const ModelConfig& config = context.config;
  const Scratch& scratch = context.scratch;
  const MatrixView<BFloat16> x = context.Rows(half.x);
  kernels::cuda::HcPre({.streams = streams,
                        .fn = weights.fn.data(),
                        .scale = weights.scale.As<float>(),
                        .base = weights.base.As<float>(),
                        .iterations = config.hc_sinkhorn_iters,
                        .norm_eps = config.rms_norm_eps,
                        .hc_eps = config.hc_eps,
                        .x = x,
                        .post = scratch.hc_post,
                        .comb = scratch.hc_comb,
                        .scratch = half.hc_scratch},
                       context.stream);
  return x;
}

void Mix(MatrixView<const BFloat16> output, MatrixView<BFloat16> streams,
         const PassContext& context) {
  kernels::cuda::HcPost({.output = output,
                         .post = context.scratch.hc_post,
                         .comb = context.scratch.hc_comb,
                         .streams = streams},
                        context.stream);
}

}  // namespace

MatrixView<const int32_t> RunBlock(const LayerWeights& weights, const LayerCache& cache,
                                   int64_t slot_bytes, MatrixView<BFloat16> streams,
                                   const PassContext& context) {
  const Scratch& scratch = context.scratch;
  const MatrixView<BFloat16> attended = context.Rows(scratch.attention.output);
  AttentionLayer attention(weights.attention, cache, slot_bytes, context);
  attention.Run(Collapse(weights.hc_attention, streams, scratch.attention, context), attended);
  Mix(attended, streams, context);

  const MatrixView<BFloat16> output = context.Rows(scratch.moe.output);
  MoeLayer(weights.moe, Collapse(weights.hc_moe, streams, scratch.moe, context), output, context);
  Mix(output, streams, context);
  return attention.selected();
}

void StoreBlockWindow(const LayerWeights& weights, const LayerCache& cache, int64_t slot_bytes,
                      MatrixView<const BFloat16> streams, const PassContext& context) {
  AttentionLayer(weights.attention, cache, slot_bytes, context)
      .StoreWindow(Collapse(weights.hc_attention, streams, context.scratch.attention, context));
}

void RunHead(const HeadWeights& weights, const Linear& lm_head, MatrixView<const BFloat16> streams,
             MatrixView<float> logits, const PassContext& context) {
  const ModelConfig& config = context.config;
  const Scratch& scratch = context.scratch;
  const MatrixView<BFloat16> x = scratch.head.x.Rows(0, streams.rows);
  kernels::cuda::HcHead({.streams = streams,
                         .fn = weights.hc.fn.data(),
                         .scale = weights.hc.scale.As<float>(),
                         .base = weights.hc.base.As<float>(),
                         .norm_eps = config.rms_norm_eps,
                         .hc_eps = config.hc_eps,
                         .x = x,
                         .scratch = scratch.head.hc_scratch},
                        context.stream);
  const MatrixView<BFloat16> normed = scratch.head.normed.Rows(0, streams.rows);
  kernels::cuda::RmsNorm(
      {.x = x, .weight = weights.norm.As<BFloat16>(), .eps = config.rms_norm_eps, .y = normed},
      context.stream);
  lm_head.Run(MatrixView<const BFloat16>(normed), logits, scratch.workspace, context.stream);
}

}  // namespace baton::engine::cuda
