#include "engine/cuda/scratch.h"

#include <algorithm>

#include "kernels/cuda/gemm_lt.h"
#include "kernels/cuda/grouped_output.h"
#include "kernels/cuda/hyper_connection.h"
#include "kernels/cuda/index_select.h"
#include "kernels/hyper_connection.h"
#include "kernels/rope.h"

namespace baton::engine::cuda {
namespace {

// What a pass does, in its order. Work on side lanes belongs to all stages until the main one has
// waited for it.
enum Stage : int {
  kEmbed,     // the MTP block
  kCollapse,  // streams -> normed input of attention
  kProject,   // -> window, inputs of compressors, the query's latent vector, index query
  kSelect,
  kQuery,   // latent vector -> query
  kAttend,  // the query becomes what it has attended
  kGroup,   // -> groups' outputs
  kOutput,  // -> output, into the streams
  kMoeCollapse,
  kRoute,  // the shared expert begins
  kExperts,
  kHead,
};
constexpr Lifetime kAlways = {kEmbed, kHead};
constexpr Lifetime kBlock = {kCollapse, kExperts};

}  // namespace

Scratch::Scratch(const ModelConfig& config, int index_topk, int64_t rows, std::byte* memory)
    : rows(rows) {
  const ArenaPlan plan = Plan(config, index_topk, rows);
  Carver carver(plan, memory);
  TakeFrom(carver, config, index_topk);
}

ArenaPlan Scratch::Plan(const ModelConfig& config, int index_topk, int64_t rows) {
  ArenaPlan plan;
  Carver carver(plan);
  Scratch adding;
  adding.rows = rows;
  adding.TakeFrom(carver, config, index_topk);
  plan.Place();
  return plan;
}

void Scratch::TakeFrom(Carver& carver, const ModelConfig& config, int index_topk) {
  const int64_t hidden = config.hidden_size;
  const int64_t width = hidden * config.hc_mult;
  workspace = carver.Take<std::byte>(kernels::cuda::LtMatmul::kWorkspaceBytes, kAlways);
  for (std::byte*& side : side_workspaces) {
    side = carver.Take<std::byte>(kernels::cuda::LtMatmul::kWorkspaceBytes, kAlways);
  }
  rope = carver.Take<float>(rows * kernels::kRopeDim, kAlways);
  compress_rope = carver.Take<float>(rows * kernels::kRopeDim, kAlways);
  streams = carver.Matrix<BFloat16>(rows, width, kAlways);
  hc_post = carver.Take<float>(rows * kernels::kStreams, kBlock);
  hc_comb = carver.Take<float>(rows * kernels::kStreams * kernels::kStreams, kBlock);
  if (config.has_mtp()) {
    embedded = carver.Matrix<BFloat16>(rows, hidden, {kEmbed, kEmbed});
    streams_quantized = carver.Fp8(rows * config.hc_mult, hidden, {kEmbed, kEmbed});
  }
  TakeAttention(carver, config, index_topk);
  TakeMoe(carver, config);

  constexpr Lifetime kThen = {kHead, kHead};
  head_streams = carver.Matrix<BFloat16>(kMaxLogitsRows, width, kThen);
  head.x = carver.Matrix<BFloat16>(kMaxLogitsRows, hidden, kThen);
  head.normed = carver.Matrix<BFloat16>(kMaxLogitsRows, hidden, kThen);
  head.hc_scratch = carver.Take<std::byte>(kernels::cuda::HcScratchBytes(kMaxLogitsRows), kThen);
  logits = carver.Matrix<float>(kMaxLogitsRows, config.vocab_size, kThen);
}

void Scratch::TakeAttention(Carver& carver, const ModelConfig& config, int index_topk) {
  const int64_t hidden = config.hidden_size;
  const int64_t values = int64_t{config.num_attention_heads} * config.head_dim;
  const int64_t outputs = int64_t{config.o_groups} * config.o_lora_rank;
  attention.x = carver.Matrix<BFloat16>(rows, hidden, {kCollapse, kCollapse});
  attention.hc_scratch =
      carver.Take<std::byte>(kernels::cuda::HcScratchBytes(rows), {kCollapse, kCollapse});
  attention.normed = carver.Matrix<BFloat16>(rows, hidden, {kCollapse, kQuery});
  attention.quantized = carver.Fp8(rows, hidden, {kCollapse, kQuery});

  q_latent = carver.Matrix<BFloat16>(rows, config.q_lora_rank, {kProject, kProject});
  q_latent_normed = carver.Fp8(rows, config.q_lora_rank, {kProject, kQuery});
  window = carver.Matrix<BFloat16>(rows, config.head_dim, {kProject, kAttend});
  projections = carver.Matrix<float>(rows, 4 * int64_t{config.head_dim}, {kProject, kQuery});
  index_projections =
      carver.Matrix<float>(rows, 4 * int64_t{config.index_head_dim}, {kProject, kProject});
  index_q = carver.Matrix<BFloat16>(rows, int64_t{config.index_n_heads} * config.index_head_dim,
                                    {kProject, kSelect});
  index_weights = carver.Matrix<BFloat16>(rows, config.index_n_heads, {kProject, kSelect});
  index_scratch = reinterpret_cast<float*>(
      carver.Take<std::byte>(kernels::cuda::kIndexSelectScratchBytes, {kSelect, kSelect}));
  selected = carver.Matrix<int32_t>(rows, index_topk, {kSelect, kExperts});

  const int64_t step_rows = std::min(rows, kMaxStepRows);
  const int64_t row_bytes = values * int64_t{sizeof(BFloat16)};
  q = {reinterpret_cast<BFloat16*>(
           carver.TakeParts({{step_rows * row_bytes, {kProject, kGroup}},
                             {(rows - step_rows) * row_bytes, {kQuery, kGroup}}})),
       rows, values};
  attention_scratch =
      reinterpret_cast<float*>(carver.Take<std::byte>(kAttentionScratchBytes, {kAttend, kAttend}));
  grouped = carver.Matrix<BFloat16>(rows, outputs, {kGroup, kOutput});
  grouped_scratch =
      carver.Take<std::byte>(kernels::cuda::GroupedOutput::ScratchBytes(
                                 config.o_lora_rank, values / config.o_groups, config.o_groups),
                             {kGroup, kGroup});
  grouped_quantized = carver.Fp8(rows, outputs, {kOutput, kOutput});
  attention.output = carver.Matrix<BFloat16>(rows, hidden, {kOutput, kOutput});
}

void Scratch::TakeMoe(Carver& carver, const ModelConfig& config) {
  const int64_t hidden = config.hidden_size;
  const int64_t k = config.num_experts_per_tok;
  const int64_t inner = config.moe_intermediate_size;
  constexpr Lifetime kRouted = {kRoute, kExperts};
  moe.x = carver.Matrix<BFloat16>(rows, hidden, {kMoeCollapse, kMoeCollapse});
  moe.hc_scratch =
      carver.Take<std::byte>(kernels::cuda::HcScratchBytes(rows), {kMoeCollapse, kMoeCollapse});
  moe.normed = carver.Matrix<BFloat16>(rows, hidden, {kMoeCollapse, kRoute});
  moe.quantized = carver.Fp8(rows, hidden, {kMoeCollapse, kExperts});
  moe.output = carver.Matrix<BFloat16>(rows, hidden, kRouted);

  shared_gate_up = carver.Matrix<BFloat16>(rows, 2 * inner, kRouted);
  shared_hidden = carver.Fp8(rows, inner, kRouted);
  router_logits = carver.Matrix<float>(rows, config.n_routed_experts, {kRoute, kRoute});
  experts = carver.Matrix<int32_t>(rows, k, kRouted);
  expert_weights = carver.Matrix<float>(rows, k, kRouted);
  expert_input = carver.Fp8(rows, hidden, {kExperts, kExperts});
  expert_begin = carver.Take<int32_t>(config.n_routed_experts + 1, {kExperts, kExperts});
  slot_row = carver.Take<int32_t>(rows * k, {kExperts, kExperts});
  slot_weight = carver.Take<float>(rows * k, {kExperts, kExperts});
  slot = carver.Matrix<int32_t>(rows, k, {kExperts, kExperts});
  expert_hidden = carver.Fp8(rows * k, inner, {kExperts, kExperts});
  expert_output = carver.Matrix<BFloat16>(rows * k, hidden, {kExperts, kExperts});
}

}  // namespace baton::engine::cuda
