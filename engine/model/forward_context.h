#pragma once

#include <cstdint>
#include <vector>

#include "common/base/bf16.h"
#include "engine/model/config.h"
#include "engine/model/forward.h"
#include "kernels/matrix.h"
#include "kernels/parallel.h"
#include "kernels/rope.h"

// What the parts of the forward pass share: options, tables, threads and scratch memory.

namespace baton::engine {

// Memory for a matrix that is rebuilt every time; grows to the largest shape asked for.
template <typename T>
class ScratchMatrix {
 public:
  // Contents are unspecified; invalidates earlier views.
  kernels::MatrixView<T> Shape(int64_t rows, int64_t cols) {
    if (static_cast<int64_t>(storage_.size()) < rows * cols) storage_.resize(rows * cols);
    return {storage_.data(), rows, cols};
  }

 private:
  std::vector<T> storage_;
};

// Rows that go through all layers together: large enough that weights are read from memory rarely,
// small enough that activations stay near the cores.
inline constexpr int64_t kMaxPassRows = 256;

// One buffer per intermediate of a layer, at most kMaxPassRows rows each.
struct ForwardScratch {
  ScratchMatrix<float> rope;  // cos, sin of plain RoPE
  ScratchMatrix<float> compress_rope;
  ScratchMatrix<BFloat16> x;  // input of a sub-block, before its norm
  ScratchMatrix<BFloat16> normed;
  ScratchMatrix<BFloat16> quantized;  // `normed` as FP8 layers see it
  ScratchMatrix<BFloat16> output;     // of a sub-block
  ScratchMatrix<float> hc_post;
  ScratchMatrix<float> hc_comb;

  ScratchMatrix<BFloat16> q_latent_kv;
  ScratchMatrix<BFloat16> q_latent;
  ScratchMatrix<BFloat16> q;
  ScratchMatrix<float> projections;  // compressor inputs
  ScratchMatrix<BFloat16> pooled;
  ScratchMatrix<BFloat16> index_q;
  ScratchMatrix<BFloat16> index_weights;
  ScratchMatrix<int32_t> selected;
  ScratchMatrix<BFloat16> attended;
  ScratchMatrix<BFloat16> grouped;

  ScratchMatrix<float> router_logits;
  ScratchMatrix<int32_t> experts;
  ScratchMatrix<float> expert_weights;

  ScratchMatrix<BFloat16> head_streams;
  ScratchMatrix<BFloat16> embedding;
};

class ExpertRanks;

struct ForwardContext {
  const ModelConfig& config;
  Numerics numerics;
  int index_topk;
  kernels::ThreadPool& pool;
  const kernels::RopeTable& compress_rope_table;  // for entries, which sit at other positions
  ForwardScratch& scratch;
  ExpertRanks* ranks;  // null: all experts are here
  const ForwardObserver& observer;
  // Of the rows of the current pass: [rows, 64].
  kernels::MatrixView<const float> rope;           // window layers and MTP
  kernels::MatrixView<const float> compress_rope;  // layers that compress (YaRN)
};

}  // namespace baton::engine
