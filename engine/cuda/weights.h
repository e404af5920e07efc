#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/checkpoint.h"
#include "engine/parallel/expert_share.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/grouped_experts.h"
#include "kernels/cuda/grouped_output.h"
#include "kernels/runtime/buffer.h"

// The weights on the device: FP8 and FP4 matrices keep their codes, norms are BF16, other vectors
// FP32. Matrices that multiply the same input are stacked where one launch can serve them.

namespace baton::engine::cuda {

using kernels::DeviceBuffer;
using kernels::cuda::Linear;

struct CompressorWeights {
  int ratio = 0;                  // 4 or 128
  int head_dim = 0;               // 512 (KV) or 128 (index keys)
  std::optional<Linear> kv_gate;  // outputs [c, g] or [c_a, c_b, g_a, g_b], FP32
  DeviceBuffer ape;               // FP32 [ratio, width of g]
  DeviceBuffer norm;
};

struct IndexerWeights {
  std::optional<Linear> wq_b;
  std::optional<Linear> weights_proj;
  CompressorWeights compressor;
};

struct AttentionWeights {
  DeviceBuffer norm;
  std::optional<Linear> wq_a;
  DeviceBuffer q_norm;
  std::optional<Linear> wq_b;
  std::optional<Linear> wkv;
  DeviceBuffer kv_norm;
  DeviceBuffer sinks;  // FP32 [heads]
  std::optional<kernels::cuda::GroupedOutput> wo_a;
  std::optional<Linear> wo_b;
  std::optional<CompressorWeights> compressor;  // CSA and HCA layers
  std::optional<IndexerWeights> indexer;        // CSA layers
};

struct MoeWeights {
  DeviceBuffer norm;
  std::optional<Linear> gate;      // FP32 output
  DeviceBuffer bias;               // FP32 [experts]; empty in hash layers
  DeviceBuffer hash_experts;       // int32 [vocab_size, k]; empty in score layers
  int first_expert = 0;            // of the bank
  kernels::cuda::ExpertBank bank;  // of the three buffers below
  DeviceBuffer gate_up;
  DeviceBuffer down;
  DeviceBuffer row_scales;
  std::optional<Linear> shared_gate_up;
  std::optional<Linear> shared_down;
};

struct HyperConnectionWeights {
  DeviceBuffer fn;     // PackHcFn of [24 or 4, 4 * hidden]
  DeviceBuffer scale;  // FP32 [3 or 1]
  DeviceBuffer base;   // FP32 [24 or 4]
};

struct LayerWeights {
  HyperConnectionWeights hc_attention;
  AttentionWeights attention;
  HyperConnectionWeights hc_moe;
  MoeWeights moe;
};

struct HeadWeights {
  HyperConnectionWeights hc;
  DeviceBuffer norm;
};

struct MtpWeights {
  DeviceBuffer embedding_norm;
  std::optional<Linear> e_proj;
  DeviceBuffer streams_norm;
  std::optional<Linear> h_proj;
  LayerWeights layer;
  HeadWeights head;
};

struct Weights {
  DeviceBuffer embedding;  // BF16 [vocab_size, hidden]
  std::vector<LayerWeights> layers;
  HeadWeights head;
  std::optional<Linear> lm_head;  // FP32 output, shared by trunk and MTP
  std::optional<MtpWeights> mtp;
};

// Rows of the largest call each layer will see.
struct RowLimits {
  int64_t pass = 0;
  int64_t logits = 0;
};

// Copies everything to the device. InvalidArgument names tensors with values that cannot be;
// FailedPrecondition a property that the kernels do not serve; ResourceExhausted says that the
// device's memory is too small. Of routed experts only the share is read.
absl::StatusOr<Weights> LoadWeights(const Checkpoint& checkpoint, const RowLimits& limits,
                                    const ExpertShare& share);

}  // namespace baton::engine::cuda
