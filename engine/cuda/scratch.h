#pragma once

#include <array>
#include <cstdint>

#include "common/base/bf16.h"
#include "engine/model/config.h"
#include "kernels/cuda/fp8_rows.h"
#include "kernels/matrix.h"
#include "kernels/runtime/buffer.h"

// Device memory of the forward pass: one buffer per intermediate, shared by all layers. Sized once
// from the largest pass; nothing in it depends on the length of a context.

namespace baton::engine::cuda {

// Rows that go through all layers together. Large enough for the tensor cores, small enough that
// the buffers below stay a fraction of the weights.
inline constexpr int64_t kMaxPassRows = 4096;
// Rows whose logits are computed at a time.
inline constexpr int64_t kMaxLogitsRows = 256;

// Streams beside the main one (side_lane.h).
inline constexpr int kSideLanes = 2;

// Deals out parts of one allocation, each aligned for any op; without memory it only counts.
class Carver {
 public:
  explicit Carver(std::byte* memory = nullptr) : memory_(memory) {}

  template <typename T>
  T* Take(int64_t count) {
    constexpr int64_t kAlignment = 256;
    const int64_t offset = used_;
    used_ += (count * int64_t{sizeof(T)} + kAlignment - 1) / kAlignment * kAlignment;
    return reinterpret_cast<T*>(memory_ + offset);
  }
  template <typename T>
  kernels::MatrixView<T> Matrix(int64_t rows, int64_t cols) {
    return {Take<T>(rows * cols), rows, cols};
  }
  kernels::cuda::MutableFp8Rows Fp8(int64_t rows, int64_t cols);

  int64_t used() const { return used_; }

 private:
  std::byte* memory_;
  int64_t used_ = 0;
};

struct Scratch {
  // SparseAttentionScratchBytes is never more.
  static constexpr int64_t kAttentionScratchBytes = int64_t{20} << 20;

  Scratch(const ModelConfig& config, int index_topk, int64_t grouped_scratch_bytes, Carver& carver);

  template <typename T>
  using Matrix = kernels::MatrixView<T>;
  using Fp8 = kernels::cuda::MutableFp8Rows;

  std::byte* workspace = nullptr;  // of products, LtMatmul::kWorkspaceBytes
  std::array<std::byte*, kSideLanes> side_workspaces = {};  // the same
  float* rope = nullptr;                                    // [rows, 64], plain RoPE
  float* compress_rope = nullptr;                           // the same of layers that compress
  Matrix<BFloat16> streams;                                 // X of the pass
  Matrix<BFloat16> x;                                       // input of a sub-block, before its norm
  Matrix<BFloat16> normed;
  Fp8 quantized;  // `normed` as FP8 layers read it
  Matrix<BFloat16> output;
  float* hc_post = nullptr;  // [rows, 4]
  float* hc_comb = nullptr;  // [rows, 16]
  std::byte* hc_scratch = nullptr;

  Matrix<BFloat16> q_latent;
  Fp8 q_latent_normed;
  Matrix<BFloat16> q;
  Matrix<BFloat16> window;
  Matrix<float> projections;  // compressor inputs
  Matrix<float> index_projections;
  Matrix<BFloat16> index_q;
  Matrix<BFloat16> index_weights;
  Matrix<int32_t> selected;
  float* index_scratch = nullptr;  // kIndexSelectScratchBytes
  Matrix<BFloat16> attended;
  float* attention_scratch = nullptr;  // kAttentionScratchBytes
  Matrix<BFloat16> grouped;
  std::byte* grouped_scratch = nullptr;  // GroupedOutput::ScratchBytes
  Fp8 grouped_quantized;

  Matrix<float> router_logits;
  Fp8 expert_input;  // rows of other ranks too
  Matrix<int32_t> experts;
  Matrix<float> expert_weights;
  int32_t* expert_begin = nullptr;
  int32_t* slot_row = nullptr;
  float* slot_weight = nullptr;
  Matrix<int32_t> slot;
  Fp8 expert_hidden;
  Matrix<BFloat16> expert_output;
  Matrix<BFloat16> shared_gate_up;
  Fp8 shared_hidden;

  Matrix<BFloat16> embedded;
  Fp8 streams_quantized;  // [rows * streams, hidden]
  Matrix<BFloat16> head_streams;
  Matrix<float> logits;
};

}  // namespace baton::engine::cuda
