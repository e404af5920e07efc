#include "engine/model/moe_layer.h"

#include "engine/model/expert_ranks.h"
#include "kernels/gemm.h"
#include "kernels/moe.h"
#include "kernels/rms_norm.h"
#include "kernels/router.h"

namespace baton::engine {

using kernels::MatrixView;

void MoeLayer(const MoeWeights& weights, std::span<const int32_t> tokens,
              MatrixView<const BFloat16> x, MatrixView<BFloat16> output, ForwardContext& context) {
  const ModelConfig& config = context.config;
  const int k = config.num_experts_per_tok;
  const MatrixView<BFloat16> normed = context.scratch.normed.Shape(x.rows, x.cols);
  const MatrixView<BFloat16> quantized = context.scratch.quantized.Shape(x.rows, x.cols);
  kernels::RmsNorm({.x = x,
                    .weight = weights.norm,
                    .eps = config.rms_norm_eps,
                    .y = normed,
                    .y_quantized = quantized},
                   context.pool);

  const MatrixView<float> logits =
      context.scratch.router_logits.Shape(x.rows, config.n_routed_experts);
  kernels::Gemm(normed, weights.gate, logits, context.pool);
  kernels::RouterParams routing{
      .logits = logits,
      .bias = weights.bias,
      .tokens = tokens,
      .scale = config.routed_scaling_factor,
      .experts = context.scratch.experts.Shape(x.rows, k),
      .weights = context.scratch.expert_weights.Shape(x.rows, k),
  };
  if (!weights.hash_experts.empty()) {
    routing.hash_experts = {weights.hash_experts.data(), config.vocab_size, k};
  }
  kernels::Router(routing, context.pool);
  if (context.ranks != nullptr) {
    context.ranks->Run(
        weights,
        {.x = quantized, .experts = routing.experts, .weights = routing.weights, .out = output},
        context.pool);
    return;
  }
  kernels::Moe({.x = quantized,
                .experts = routing.experts,
                .weights = routing.weights,
                .routed = weights.routed,
                .shared = &weights.shared,
                .limit = config.swiglu_limit,
                .out = output},
               context.pool);
}

}  // namespace baton::engine
