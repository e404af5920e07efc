#pragma once

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/bf16.h"
#include "engine/model/checkpoint.h"
#include "engine/model/config.h"
#include "engine/parallel/expert_share.h"
#include "kernels/gemm.h"
#include "kernels/moe.h"

// The weights as the forward pass uses them: FP8 and FP4 matrices widened to BF16 (exactly) and
// packed for Gemm, vectors as FP32. Matrices that multiply the same input are stacked into one.

namespace baton::engine {

struct CompressorWeights {
  int ratio = 0;                  // 4 or 128
  int head_dim = 0;               // 512 (KV) or 128 (index keys)
  kernels::PackedMatrix kv_gate;  // wkv above wgate; outputs [c, g] or [c_a, c_b, g_a, g_b]
  std::vector<float> ape;         // [ratio, width of g]
  std::vector<float> norm;        // [head_dim]
};

struct IndexerWeights {
  kernels::PackedMatrix wq_b;
  kernels::PackedMatrix weights_proj;
  CompressorWeights compressor;
};

struct AttentionWeights {
  std::vector<float> norm;
  kernels::PackedMatrix wq_a_wkv;  // wq_a [q_lora_rank] above wkv [head_dim]
  std::vector<float> q_norm;
  kernels::PackedMatrix wq_b;
  std::vector<float> kv_norm;
  std::vector<float> sinks;                 // one a head
  std::vector<kernels::PackedMatrix> wo_a;  // one a group
  kernels::PackedMatrix wo_b;
  std::optional<CompressorWeights> compressor = {};  // CSA and HCA layers
  std::optional<IndexerWeights> indexer = {};        // CSA layers
};

struct MoeWeights {
  std::vector<float> norm;
  kernels::PackedMatrix gate;
  std::vector<float> bias = {};  // empty in hash layers
  std::vector<int32_t> hash_experts =
      {};                // [vocab_size, num_experts_per_tok]; empty in score layers
  int first_expert = 0;  // of those in memory
  std::vector<kernels::ExpertWeights> routed = {};
  kernels::ExpertWeights shared = {};
};

struct HyperConnectionWeights {
  kernels::PackedMatrix fn;  // FP32
  std::vector<float> scale;
  std::vector<float> base;
};

struct LayerWeights {
  HyperConnectionWeights hc_attention;
  AttentionWeights attention;
  HyperConnectionWeights hc_moe;
  MoeWeights moe;
};

// From the last layer's streams to the input of the LM head.
struct HeadWeights {
  HyperConnectionWeights hc;
  std::vector<float> norm;
};

struct MtpWeights {
  std::vector<float> embedding_norm;
  kernels::PackedMatrix e_proj;
  std::vector<float> streams_norm;
  kernels::PackedMatrix h_proj;
  LayerWeights layer;
  HeadWeights head;
};

struct Weights {
  std::vector<BFloat16> embedding;  // [vocab_size, hidden_size]
  std::vector<LayerWeights> layers;
  HeadWeights head;
  kernels::PackedMatrix lm_head;  // shared by trunk and MTP
  std::optional<MtpWeights> mtp;
};

// Copies everything out of the checkpoint, which may be dropped afterwards. InvalidArgument names
// tensors with a value that is not finite and hash tables with an expert that does not exist. Of
// routed experts only the share is read.
absl::StatusOr<Weights> LoadWeights(const Checkpoint& checkpoint, const ExpertShare& share = {});

}  // namespace baton::engine
