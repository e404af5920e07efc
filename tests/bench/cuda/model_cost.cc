#include "tests/bench/cuda/model_cost.h"

#include <algorithm>
#include <cmath>

#include "common/base/bf16.h"

namespace baton::engine {
namespace {

// Elements of a layer's matrices, by the format they are stored in.
struct Elements {
  double fp8 = 0;
  double bf16 = 0;
  double f32 = 0;
  double expert = 0;  // FP4, of one expert
};

Elements ElementsOf(const ModelConfig& config, LayerKind kind) {
  const double hidden = config.hidden_size;
  const double values = static_cast<double>(config.num_attention_heads) * config.head_dim;
  const double outputs = static_cast<double>(config.o_groups) * config.o_lora_rank;
  const double inner = config.moe_intermediate_size;
  const double mixes = config.hc_mult * (2.0 + config.hc_mult);
  Elements elements;
  elements.fp8 = hidden * config.q_lora_rank + config.q_lora_rank * values +
                 hidden * config.head_dim + values * config.o_lora_rank + outputs * hidden +
                 3 * hidden * inner;
  elements.bf16 = hidden * config.n_routed_experts;
  elements.f32 = 2 * mixes * config.hc_mult * hidden;
  elements.expert = 3 * hidden * inner;
  if (kind == LayerKind::kHca) elements.bf16 += 2 * hidden * config.head_dim;
  if (kind == LayerKind::kCsa) {
    elements.bf16 +=
        4 * hidden * (config.head_dim + config.index_head_dim) + hidden * config.index_n_heads;
    elements.fp8 +=
        static_cast<double>(config.q_lora_rank) * config.index_n_heads * config.index_head_dim;
  }
  return elements;
}

// Entries that a row at `position` attends beside its window.
double Attended(const ModelConfig& config, LayerKind kind, int64_t position) {
  if (kind == LayerKind::kWindow) return 0;
  if (kind == LayerKind::kHca) return static_cast<double>((position + 1) / kHcaRatio);
  return static_cast<double>(std::min<int64_t>(config.index_topk, (position + 1) / kCsaRatio));
}

// Its share of a page.
double EntryBytes(kernels::EntryFormat format, int head_dim) {
  constexpr int kEntries = 64;
  return static_cast<double>(kernels::PageBytes(format, head_dim, kEntries)) / kEntries;
}

double Window(const ModelConfig& config, int64_t position) {
  return static_cast<double>(std::min<int64_t>(config.sliding_window, position + 1));
}

}  // namespace

double FlopsOfRow(const ModelConfig& config, int64_t position) {
  double flops = 0;
  for (int layer = 0; layer < config.num_hidden_layers; ++layer) {
    const LayerKind kind = config.layer_kind(layer);
    const Elements elements = ElementsOf(config, kind);
    flops += 2 * (elements.fp8 + elements.bf16 + elements.f32 +
                  config.num_experts_per_tok * elements.expert);
    // Scores and values.
    flops += 4.0 * config.num_attention_heads * config.head_dim *
             (Window(config, position) + Attended(config, kind, position));
    if (kind == LayerKind::kCsa) {
      flops += 2.0 * config.index_n_heads * config.index_head_dim *
               static_cast<double>((position + 1) / kCsaRatio);
    }
  }
  return flops;
}

LayerBytes BytesOfLayer(const CacheGeometry& geometry, const ModelConfig& config, LayerKind kind,
                        int64_t batch, int64_t context) {
  constexpr double kFp4 = 0.5 + 1.0 / 32;  // a scale for 32 codes
  const Elements elements = ElementsOf(config, kind);
  const double experts = config.n_routed_experts;
  const double used = experts * (1 - std::pow(1 - config.num_experts_per_tok / experts,
                                              static_cast<double>(batch)));
  const int64_t position = context - 1;
  double cache =
      Window(config, position) * geometry.head_dim * int{sizeof(BFloat16)} +
      Attended(config, kind, position) * EntryBytes(geometry.options.kv_format, geometry.head_dim);
  if (kind == LayerKind::kCsa) {
    cache += static_cast<double>(context / kCsaRatio) *
             EntryBytes(geometry.options.index_format, geometry.index_head_dim);
  }
  return {.weights =
              elements.fp8 + 2 * elements.bf16 + 4 * elements.f32 + used * kFp4 * elements.expert,
          .cache = static_cast<double>(batch) * cache};
}

double BytesOfHead(const ModelConfig& config) {
  return 2.0 * config.vocab_size * config.hidden_size;
}

}  // namespace baton::engine
