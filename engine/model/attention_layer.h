#pragma once

#include <cstdint>

#include "engine/model/forward_context.h"
#include "engine/model/layer_cache.h"
#include "engine/model/pass.h"
#include "engine/model/weights.h"
#include "kernels/matrix.h"

// Attention over the window and the compressed entries of a layer.

namespace baton::engine {

// One layer's attention over the rows of one pass.
class AttentionLayer {
 public:
  AttentionLayer(const AttentionWeights& weights, const LayerCache& cache, const Pass& pass,
                 ForwardContext& context);

  // output = attention of norm(x), both [pass.rows(), hidden]. Stores the rows' window KV, their
  // compressor state and the entries that close within them.
  void Run(kernels::MatrixView<const BFloat16> x, kernels::MatrixView<BFloat16> output);

  // Only the part of Run that later rows of a window layer depend on: the window KV.
  void StoreWindow(kernels::MatrixView<const BFloat16> x);

 private:
  using Bf16View = kernels::MatrixView<BFloat16>;

  void ProjectInput(kernels::MatrixView<const BFloat16> x);
  void ProjectQuery();
  void StoreEntries(const CompressorWeights& weights, bool is_index);
  void SelectEntries();
  void ReportIndexQueries(kernels::MatrixView<const BFloat16> q,
                          kernels::MatrixView<const BFloat16> w) const;
  void ReportSelection() const;
  void Attend();
  void WriteWindow();
  void ProjectOutput(Bf16View output);

  const AttentionWeights& weights_;
  LayerCache cache_;
  const Pass& pass_;
  ForwardContext& context_;
  kernels::MatrixView<const float> rope_;

  Bf16View normed_;     // norm(x)
  Bf16View quantized_;  // norm(x) as FP8 layers see it
  Bf16View q_latent_;   // output of wq_a, then its norm, quantised
  Bf16View window_;     // the rows' window KV
  Bf16View q_;
  Bf16View attended_;
  kernels::MatrixView<int32_t> selected_;  // null unless CSA
};

}  // namespace baton::engine
