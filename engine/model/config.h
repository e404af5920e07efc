#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/cache_ratios.h"

// What config.json says about a DeepSeek-V4 model, under the keys' own names. Only models whose
// fixed properties the kernels were written for are accepted, so code may rely on them.

namespace baton::engine {

// The three ways a layer attends, by its entry in compress_ratios.
enum class LayerKind : uint8_t {
  kWindow,  // 0: the last 128 tokens only
  kCsa,     // 4: window, plus the indexer's selection of overlapping 4:1 entries
  kHca,     // 128: window, plus every 128:1 entry
};

struct ModelConfig {
  // Properties the kernels and the cache format hard-wire; config.json must agree.
  static constexpr int kHeadDim = 512;
  static constexpr int kRopeDim = 64;
  static constexpr int kIndexHeadDim = 128;
  static constexpr int kStreams = 4;  // hc_mult
  static constexpr int kWindow = kWindowTokens;
  static constexpr int kCsaRatio = baton::kCsaRatio;
  static constexpr int kHcaRatio = baton::kHcaRatio;

  struct RopeScaling {  // YaRN, on layers that compress
    double factor = 0;
    int original_max_position_embeddings = 0;
    double beta_fast = 0;
    double beta_slow = 0;
  };

  int vocab_size = 0;
  int hidden_size = 0;
  int num_hidden_layers = 0;
  int num_nextn_predict_layers = 0;  // 0 or 1
  int num_hash_layers = 0;           // the first layers route by token id
  int max_position_embeddings = 0;
  int eos_token_id = 0;

  int num_attention_heads = 0;
  int head_dim = 0;
  int qk_rope_head_dim = 0;
  int q_lora_rank = 0;
  int o_groups = 0;
  int o_lora_rank = 0;
  int sliding_window = 0;
  std::vector<int> compress_ratios;  // trunk layers, then the MTP block
  double rope_theta = 0;
  double compress_rope_theta = 0;
  RopeScaling rope_scaling;

  int index_n_heads = 0;
  int index_head_dim = 0;
  int index_topk = 0;

  int n_routed_experts = 0;
  int num_experts_per_tok = 0;
  int n_shared_experts = 0;
  int moe_intermediate_size = 0;
  float routed_scaling_factor = 0;
  float swiglu_limit = 0;

  int hc_mult = 0;
  int hc_sinkhorn_iters = 0;
  float hc_eps = 0;
  float rms_norm_eps = 0;

  bool has_mtp() const { return num_nextn_predict_layers > 0; }
  LayerKind layer_kind(int layer) const;  // of a trunk layer
  int layers_of(LayerKind kind) const;    // trunk layers of that kind
  bool routes_by_hash(int layer) const { return layer < num_hash_layers; }
};

// Parses and validates the text of a config.json. InvalidArgument names every key that is missing
// or has a value this code does not support; FailedPrecondition names the keys by which a config
// belongs to a look-alike of another architecture.
absl::StatusOr<ModelConfig> ParseModelConfig(absl::string_view json);

}  // namespace baton::engine
