#include "engine/model/block.h"

#include "engine/model/moe_layer.h"
#include "kernels/gemm.h"
#include "kernels/hyper_connection.h"
#include "kernels/rms_norm.h"

namespace baton::engine {
namespace {

using kernels::MatrixView;

// What HcPre leaves for HcPost; x is the sub-block's input.
struct HyperConnection {
  MatrixView<BFloat16> x;
  MatrixView<float> post;
  MatrixView<float> comb;
};

HyperConnection Collapse(const HyperConnectionWeights& weights, MatrixView<const BFloat16> streams,
                         ForwardContext& context) {
  const ModelConfig& config = context.config;
  const HyperConnection hc{
      .x = context.scratch.x.Shape(streams.rows, config.hidden_size),
      .post = context.scratch.hc_post.Shape(streams.rows, kernels::kStreams),
      .comb = context.scratch.hc_comb.Shape(streams.rows, kernels::kStreams * kernels::kStreams),
  };
  kernels::HcPre({.streams = streams,
                  .fn = &weights.fn,
                  .scale = weights.scale,
                  .base = weights.base,
                  .iterations = config.hc_sinkhorn_iters,
                  .norm_eps = config.rms_norm_eps,
                  .hc_eps = config.hc_eps,
                  .x = hc.x,
                  .post = hc.post,
                  .comb = hc.comb},
                 context.pool);
  return hc;
}

void Mix(const HyperConnection& hc, MatrixView<const BFloat16> output, MatrixView<BFloat16> streams,
         ForwardContext& context) {
  kernels::HcPost({.output = output, .post = hc.post, .comb = hc.comb, .streams = streams},
                  context.pool);
}

}  // namespace

void RunBlock(const LayerWeights& weights, const LayerCache& cache, const Pass& pass,
              MatrixView<BFloat16> streams, ForwardContext& context) {
  const MatrixView<BFloat16> output =
      context.scratch.output.Shape(pass.rows(), context.config.hidden_size);
  HyperConnection hc = Collapse(weights.hc_attention, streams, context);
  AttentionLayer(weights.attention, cache, pass, context).Run(hc.x, output);
  Mix(hc, output, streams, context);

  hc = Collapse(weights.hc_moe, streams, context);
  MoeLayer(weights.moe, pass.tokens, hc.x, output, context);
  Mix(hc, output, streams, context);
}

void StoreBlockWindow(const LayerWeights& weights, const LayerCache& cache, const Pass& pass,
                      MatrixView<const BFloat16> streams, ForwardContext& context) {
  const HyperConnection hc = Collapse(weights.hc_attention, streams, context);
  AttentionLayer(weights.attention, cache, pass, context).StoreWindow(hc.x);
}

void RunHead(const HeadWeights& weights, const kernels::PackedMatrix& lm_head,
             MatrixView<const BFloat16> streams, MatrixView<float> logits,
             ForwardContext& context) {
  const ModelConfig& config = context.config;
  const MatrixView<BFloat16> x = context.scratch.x.Shape(streams.rows, config.hidden_size);
  kernels::HcHead({.streams = streams,
                   .fn = &weights.hc.fn,
                   .scale = weights.hc.scale[0],
                   .base = weights.hc.base,
                   .norm_eps = config.rms_norm_eps,
                   .hc_eps = config.hc_eps,
                   .x = x},
                  context.pool);
  const MatrixView<BFloat16> normed =
      context.scratch.normed.Shape(streams.rows, config.hidden_size);
  kernels::RmsNorm({.x = x, .weight = weights.norm, .eps = config.rms_norm_eps, .y = normed},
                   context.pool);
  kernels::Gemm(normed, lm_head, logits, context.pool);
}

}  // namespace baton::engine
