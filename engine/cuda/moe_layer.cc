#include "engine/cuda/moe_layer.h"

#include "kernels/cuda/dequantize.h"
#include "kernels/cuda/grouped_experts.h"
#include "kernels/cuda/moe.h"
#include "kernels/cuda/permute.h"
#include "kernels/cuda/rms_norm.h"
#include "kernels/cuda/router.h"

namespace baton::engine::cuda {
namespace {

using kernels::MatrixView;

void Route(const MoeWeights& weights, MatrixView<const BFloat16> normed,
           const PassContext& context) {
  const ModelConfig& config = context.config;
  const Scratch& scratch = context.scratch;
  const MatrixView<float> logits = context.Rows(scratch.router_logits);
  weights.gate->Run(normed, logits, scratch.workspace, context.stream);
  kernels::cuda::RouterParams routing{
      .logits = logits,
      .bias = weights.bias.As<float>(),
      .tokens = context.arrays.tokens,
      .sequence = context.arrays.batch.sequence,
      .scale = config.routed_scaling_factor,
      .experts = context.Rows(scratch.experts),
      .weights = context.Rows(scratch.expert_weights),
  };
  if (weights.hash_experts.size() > 0) {
    routing.hash_experts = {weights.hash_experts.As<const int32_t>(), config.vocab_size,
                            config.num_experts_per_tok};
  }
  kernels::cuda::Router(routing, context.stream);
  kernels::cuda::AssignSlots({.experts = routing.experts,
                              .weights = routing.weights.data,
                              .expert_count = config.n_routed_experts,
                              .begin = scratch.expert_begin,
                              .row = scratch.slot_row,
                              .weight = scratch.slot_weight,
                              .slot = scratch.slot.data},
                             context.stream);
}

// y of every slot, from the rows as the FP8 grid leaves them.
void RunExperts(const MoeWeights& weights, const PassContext& context) {
  const Scratch& scratch = context.scratch;
  const MatrixView<BFloat16> x = context.Rows(scratch.quantized_values);
  kernels::cuda::DequantizeRows(ReadOnly(context.Rows(scratch.quantized)), x, context.stream);
  const int64_t count = context.rows() * context.config.num_experts_per_tok;
  const kernels::cuda::ExpertSlots slots{.count = count,
                                         .begin = scratch.expert_begin,
                                         .row = scratch.slot_row,
                                         .weight = scratch.slot_weight};
  const MatrixView<BFloat16> hidden = scratch.expert_hidden.Rows(0, count);
  kernels::cuda::ExpertGateUp({.bank = weights.bank,
                               .slots = slots,
                               .x = x,
                               .limit = context.config.swiglu_limit,
                               .hidden = hidden},
                              context.stream);
  kernels::cuda::ExpertDown({.bank = weights.bank,
                             .slots = slots,
                             .hidden = hidden,
                             .y = scratch.expert_output.Rows(0, count)},
                            context.stream);
}

void RunSharedExpert(const MoeWeights& weights, MatrixView<BFloat16> output,
                     const PassContext& context) {
  const Scratch& scratch = context.scratch;
  const MatrixView<BFloat16> gate_up = context.Rows(scratch.shared_gate_up);
  const auto hidden = context.Rows(scratch.shared_hidden);
  weights.shared_gate_up->Run(ReadOnly(context.Rows(scratch.quantized)), gate_up, scratch.workspace,
                              context.stream);
  kernels::cuda::GateSharedExpert(
      {.gate_up = gate_up, .limit = context.config.swiglu_limit, .v = hidden}, context.stream);
  weights.shared_down->Run(ReadOnly(hidden), output, scratch.workspace, context.stream);
}

}  // namespace

void MoeLayer(const MoeWeights& weights, MatrixView<const BFloat16> x, MatrixView<BFloat16> output,
              const PassContext& context) {
  const Scratch& scratch = context.scratch;
  const MatrixView<BFloat16> normed = context.Rows(scratch.normed);
  kernels::cuda::RmsNorm({.x = x,
                          .weight = weights.norm.As<BFloat16>(),
                          .eps = context.config.rms_norm_eps,
                          .y = normed,
                          .quantized = context.Rows(scratch.quantized)},
                         context.stream);
  Route(weights, normed, context);
  RunExperts(weights, context);
  RunSharedExpert(weights, output, context);
  kernels::cuda::CombineExperts(
      {.y = scratch.expert_output.Rows(0, context.rows() * context.config.num_experts_per_tok),
       .slot = context.Rows(scratch.slot),
       .shared = output,
       .out = output},
      context.stream);
}

}  // namespace baton::engine::cuda
