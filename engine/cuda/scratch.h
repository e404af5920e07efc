#pragma once

#include <array>
#include <cstdint>

#include "common/base/bf16.h"
#include "engine/cuda/arena.h"
#include "engine/model/config.h"
#include "engine/parallel/step_board.h"
#include "kernels/cuda/fp8_rows.h"
#include "kernels/matrix.h"

// Device memory of the forward pass: one buffer per intermediate, shared by all layers. Sized once
// from the largest pass; nothing in it depends on the length of a context. Most are in use for a
// part of a layer only, and lie where others do that are not in use then.

namespace baton::engine::cuda {

// Rows that go through all layers together: large enough for the tensor cores.
inline constexpr int64_t kMaxPassRows = 4096;
// Rows whose logits are computed at a time.
inline constexpr int64_t kMaxLogitsRows = 256;
// With at most so many rows the query is projected beside the selection, else after it.
inline constexpr int64_t kMaxStepRows = Wish::kMaxStepRows;

// Streams beside the main one (side_lane.h).
inline constexpr int kSideLanes = 2;

struct Scratch {
  // SparseAttentionScratchBytes is never more.
  static constexpr int64_t kAttentionScratchBytes = int64_t{20} << 20;

  // Of passes of so many rows, a multiple of 16.
  Scratch(const ModelConfig& config, int index_topk, int64_t rows, std::byte* memory);
  static ArenaPlan Plan(const ModelConfig& config, int index_topk, int64_t rows);

  template <typename T>
  using Matrix = kernels::MatrixView<T>;
  using Fp8 = kernels::cuda::MutableFp8Rows;

  // Input and output of either half of a block.
  struct Half {
    Matrix<BFloat16> x;  // before its norm
    Matrix<BFloat16> normed;
    Fp8 quantized;  // `normed` as FP8 layers read it
    Matrix<BFloat16> output;
    std::byte* hc_scratch = nullptr;
  };

  int64_t rows = 0;
  std::byte* workspace = nullptr;  // of products, LtMatmul::kWorkspaceBytes
  std::array<std::byte*, kSideLanes> side_workspaces = {};  // the same
  float* rope = nullptr;                                    // [rows, 64], plain RoPE
  float* compress_rope = nullptr;                           // the same of layers that compress
  Matrix<BFloat16> streams;                                 // X of the pass
  float* hc_post = nullptr;                                 // [rows, 4]
  float* hc_comb = nullptr;                                 // [rows, 16]

  Half attention;
  Matrix<BFloat16> q_latent;
  Fp8 q_latent_normed;
  Matrix<BFloat16> window;
  Matrix<float> projections;  // compressor inputs
  Matrix<float> index_projections;
  Matrix<BFloat16> index_q;
  Matrix<BFloat16> index_weights;
  Matrix<int32_t> selected;
  float* index_scratch = nullptr;      // kIndexSelectScratchBytes
  Matrix<BFloat16> q;                  // then what it has attended
  float* attention_scratch = nullptr;  // kAttentionScratchBytes
  Matrix<BFloat16> grouped;
  std::byte* grouped_scratch = nullptr;  // GroupedOutput::ScratchBytes
  Fp8 grouped_quantized;

  Half moe;
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
  Half head;  // but for `quantized` and `output`
  Matrix<float> logits;

 private:
  Scratch() = default;
  void TakeFrom(Carver& carver, const ModelConfig& config, int index_topk);
  void TakeAttention(Carver& carver, const ModelConfig& config, int index_topk);
  void TakeMoe(Carver& carver, const ModelConfig& config);
};

}  // namespace baton::engine::cuda
