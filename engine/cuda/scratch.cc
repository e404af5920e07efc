#include "engine/cuda/scratch.h"

#include "kernels/cuda/gemm_lt.h"
#include "kernels/cuda/hyper_connection.h"
#include "kernels/cuda/index_select.h"
#include "kernels/hyper_connection.h"
#include "kernels/rope.h"

namespace baton::engine::cuda {

kernels::cuda::MutableFp8Rows Carver::Fp8(int64_t rows, int64_t cols) {
  constexpr int64_t kScaleGroup = 128;
  return {.codes = Take<uint8_t>(rows * cols),
          .scales = Take<float>(cols / kScaleGroup * rows),
          .rows = rows,
          .cols = cols,
          .stride = cols,
          .scale_stride = rows};
}

Scratch::Scratch(const ModelConfig& config, int index_topk, int64_t grouped_scratch_bytes,
                 Carver& carver) {
  const int64_t rows = kMaxPassRows;
  const int64_t hidden = config.hidden_size;
  const int64_t width = hidden * config.hc_mult;
  const int64_t values = int64_t{config.num_attention_heads} * config.head_dim;
  const int64_t outputs = int64_t{config.o_groups} * config.o_lora_rank;
  const int64_t k = config.num_experts_per_tok;
  const int64_t inner = config.moe_intermediate_size;
  workspace = carver.Take<std::byte>(kernels::cuda::LtMatmul::kWorkspaceBytes);
  for (std::byte*& side : side_workspaces) {
    side = carver.Take<std::byte>(kernels::cuda::LtMatmul::kWorkspaceBytes);
  }
  rope = carver.Take<float>(rows * kernels::kRopeDim);
  compress_rope = carver.Take<float>(rows * kernels::kRopeDim);
  streams = carver.Matrix<BFloat16>(rows, width);
  x = carver.Matrix<BFloat16>(rows, hidden);
  normed = carver.Matrix<BFloat16>(rows, hidden);
  quantized = carver.Fp8(rows, hidden);
  output = carver.Matrix<BFloat16>(rows, hidden);
  hc_post = carver.Take<float>(rows * kernels::kStreams);
  hc_comb = carver.Take<float>(rows * kernels::kStreams * kernels::kStreams);
  hc_scratch = carver.Take<std::byte>(kernels::cuda::HcScratchBytes(rows));

  q_latent = carver.Matrix<BFloat16>(rows, config.q_lora_rank);
  q_latent_normed = carver.Fp8(rows, config.q_lora_rank);
  q = carver.Matrix<BFloat16>(rows, values);
  window = carver.Matrix<BFloat16>(rows, config.head_dim);
  projections = carver.Matrix<float>(rows, 4 * int64_t{config.head_dim});
  index_projections = carver.Matrix<float>(rows, 4 * int64_t{config.index_head_dim});
  index_q = carver.Matrix<BFloat16>(rows, int64_t{config.index_n_heads} * config.index_head_dim);
  index_weights = carver.Matrix<BFloat16>(rows, config.index_n_heads);
  selected = carver.Matrix<int32_t>(rows, index_topk);
  index_scratch =
      reinterpret_cast<float*>(carver.Take<std::byte>(kernels::cuda::kIndexSelectScratchBytes));
  attended = carver.Matrix<BFloat16>(rows, values);
  attention_scratch = reinterpret_cast<float*>(carver.Take<std::byte>(kAttentionScratchBytes));
  grouped_scratch = carver.Take<std::byte>(grouped_scratch_bytes);
  grouped = carver.Matrix<BFloat16>(rows, outputs);
  grouped_quantized = carver.Fp8(rows, outputs);

  router_logits = carver.Matrix<float>(rows, config.n_routed_experts);
  expert_input = carver.Fp8(rows, hidden);
  experts = carver.Matrix<int32_t>(rows, k);
  expert_weights = carver.Matrix<float>(rows, k);
  expert_begin = carver.Take<int32_t>(config.n_routed_experts + 1);
  slot_row = carver.Take<int32_t>(rows * k);
  slot_weight = carver.Take<float>(rows * k);
  slot = carver.Matrix<int32_t>(rows, k);
  expert_hidden = carver.Fp8(rows * k, inner);
  expert_output = carver.Matrix<BFloat16>(rows * k, hidden);
  shared_gate_up = carver.Matrix<BFloat16>(rows, 2 * inner);
  shared_hidden = carver.Fp8(rows, inner);

  if (config.has_mtp()) {
    embedded = carver.Matrix<BFloat16>(rows, hidden);
    streams_quantized = carver.Fp8(rows * config.hc_mult, hidden);
  }
  head_streams = carver.Matrix<BFloat16>(kMaxLogitsRows, width);
  logits = carver.Matrix<float>(kMaxLogitsRows, config.vocab_size);
}

}  // namespace baton::engine::cuda
