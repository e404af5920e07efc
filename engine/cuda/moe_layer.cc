#include "engine/cuda/moe_layer.h"

#include "engine/cuda/expert_ranks.h"
#include "kernels/cuda/grouped_experts.h"
#include "kernels/cuda/moe.h"
#include "kernels/cuda/permute.h"
#include "kernels/cuda/rms_norm.h"
#include "kernels/cuda/router.h"

namespace baton::engine::cuda {
namespace {

using kernels::MatrixView;

// Experts and weights of every row, in the scratch memory.
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
}

// y of every slot.
MatrixView<const BFloat16> RunAllExperts(const MoeWeights& weights, const PassContext& context) {
  const Scratch& scratch = context.scratch;
  kernels::cuda::AssignSlots({.experts = context.Rows(scratch.experts),
                              .weights = scratch.expert_weights.data,
                              .expert_count = weights.bank.experts,
                              .begin = scratch.expert_begin,
                              .row = scratch.slot_row,
                              .weight = scratch.slot_weight,
                              .slot = scratch.slot.data},
                             context.stream);
  return RunExperts(weights, context.config, ReadOnly(context.Rows(scratch.moe.quantized)),
                    context.stream, scratch);
}

void RunSharedExpert(const MoeWeights& weights, MatrixView<BFloat16> output, const Lane& lane,
                     const PassContext& context) {
  const Scratch& scratch = context.scratch;
  const MatrixView<BFloat16> gate_up = context.Rows(scratch.shared_gate_up);
  const auto hidden = context.Rows(scratch.shared_hidden);
  weights.shared_gate_up->Run(ReadOnly(context.Rows(scratch.moe.quantized)), gate_up,
                              lane.workspace, lane.stream);
  kernels::cuda::GateSharedExpert(
      {.gate_up = gate_up, .limit = context.config.swiglu_limit, .v = hidden}, lane.stream);
  weights.shared_down->Run(ReadOnly(hidden), output, lane.workspace, lane.stream);
}

}  // namespace

MatrixView<const BFloat16> RunExperts(const MoeWeights& weights, const ModelConfig& config,
                                      const kernels::cuda::Fp8Rows& x, CUstream_st* stream,
                                      const Scratch& scratch) {
  const int64_t count = x.rows * config.num_experts_per_tok;
  const kernels::cuda::ExpertSlots slots{.count = count,
                                         .begin = scratch.expert_begin,
                                         .row = scratch.slot_row,
                                         .weight = scratch.slot_weight};
  const auto hidden = PassContext::Shape(scratch.expert_hidden, count);
  const MatrixView<BFloat16> y = scratch.expert_output.Rows(0, count);
  kernels::cuda::ExpertGateUp({.bank = weights.bank,
                               .slots = slots,
                               .x = x,
                               .limit = config.swiglu_limit,
                               .hidden = hidden},
                              stream);
  kernels::cuda::ExpertDown(
      {.bank = weights.bank, .slots = slots, .hidden = ReadOnly(hidden), .y = y}, stream);
  return y;
}

void MoeLayer(const MoeWeights& weights, MatrixView<const BFloat16> x, MatrixView<BFloat16> output,
              const PassContext& context) {
  const Scratch& scratch = context.scratch;
  const MatrixView<BFloat16> normed = context.Rows(scratch.moe.normed);
  kernels::cuda::RmsNorm({.x = x,
                          .weight = weights.norm.As<BFloat16>(),
                          .eps = context.config.rms_norm_eps,
                          .y = normed,
                          .quantized = context.Rows(scratch.moe.quantized)},
                         context.stream);
  // The shared expert needs nothing of the routed ones, which may lie far away.
  SideLane& side = context.sides[0];
  side.Follow(context.stream);
  RunSharedExpert(weights, output, side.lane(), context);
  Route(weights, normed, context);
  if (context.ranks != nullptr) {
    context.ranks->Run(weights,
                       {.x = ReadOnly(context.Rows(scratch.moe.quantized)),
                        .experts = context.Rows(scratch.experts),
                        .weights = scratch.expert_weights.data},
                       context.stream, scratch);
    side.Join(context.stream);
    context.ranks->Add(output, output, context.stream);
    return;
  }
  const MatrixView<const BFloat16> y = RunAllExperts(weights, context);
  side.Join(context.stream);
  kernels::cuda::CombineExperts(
      {.y = y, .slot = context.Rows(scratch.slot), .shared = output, .out = output},
      context.stream);
}

}  // namespace baton::engine::cuda
