#pragma once

#include "engine/cache/storage.h"
#include "engine/cuda/pass_context.h"
#include "engine/cuda/weights.h"
#include "engine/model/layer_cache.h"
#include "kernels/cuda/batch.h"
#include "kernels/matrix.h"

namespace baton::engine::cuda {

// One layer's attention over the rows of a pass: engine/model/attention_layer.h on the device.
class AttentionLayer {
 public:
  AttentionLayer(const AttentionWeights& weights, const LayerCache& cache, int64_t slot_bytes,
                 const PassContext& context);

  // output = attention of norm(x), both [rows, hidden]. Stores the rows' window KV, their
  // compressor state and the entries that close within them.
  void Run(kernels::MatrixView<const BFloat16> x, kernels::MatrixView<BFloat16> output);

  // Only the part of Run that later rows of a window layer depend on: the window KV.
  void StoreWindow(kernels::MatrixView<const BFloat16> x);

  // What Run selected, [rows, index_topk]; null unless CSA.
  kernels::MatrixView<const int32_t> selected() const { return selected_; }

 private:
  using Bf16View = kernels::MatrixView<BFloat16>;

  void NormInput(kernels::MatrixView<const BFloat16> x);
  void ProjectWindow(const Lane& lane);
  void ProjectLatent();
  void ProjectQuery(const Lane& lane);
  void StoreEntries(const CompressorWeights& weights, bool is_index, const Lane& lane);
  void ProjectIndexQuery();
  void SelectEntries();
  void Attend();  // in place of the query
  void WriteWindow();
  void ProjectOutput(Bf16View output);
  // The rings of all slots, from that of slot 0.
  template <typename T>
  kernels::cuda::SlotRings<T> Rings(const kernels::RowRing<std::remove_const_t<T>>& first) const;

  const AttentionWeights& weights_;
  const LayerCache& cache_;
  const int64_t slot_bytes_;
  const PassContext& context_;
  const Scratch& scratch_;
  const float* rope_;
  // Whether the rows fit the ring beside the window before them; else they are written once all
  // rows have attended.
  const bool writes_ring_at_once_;
  kernels::cuda::MutableFp8Rows latent_;  // norm(wq_a norm(x)) as FP8 layers read it
  kernels::MatrixView<int32_t> selected_;
};

}  // namespace baton::engine::cuda
