#include "engine/cuda/attention_layer.h"

#include <algorithm>
#include <cmath>

#include "kernels/cuda/compressor.h"
#include "kernels/cuda/index_query.h"
#include "kernels/cuda/index_select.h"
#include "kernels/cuda/quantize.h"
#include "kernels/cuda/rms_norm.h"
#include "kernels/cuda/rope.h"
#include "kernels/cuda/sparse_attention.h"
#include "kernels/cuda/window_kv.h"

namespace baton::engine::cuda {

using kernels::MatrixView;

AttentionLayer::AttentionLayer(const AttentionWeights& weights, const LayerCache& cache,
                               int64_t slot_bytes, const PassContext& context)
    : weights_(weights),
      cache_(cache),
      slot_bytes_(slot_bytes),
      context_(context),
      scratch_(context.scratch),
      rope_(cache.kind() == LayerKind::kWindow ? scratch_.rope : scratch_.compress_rope),
      writes_ring_at_once_(context.shape.sequence_rows <=
                           cache.Window(0).rows - (ModelConfig::kWindow - 1)) {}

template <typename T>
kernels::cuda::SlotRings<T> AttentionLayer::Rings(
    const kernels::RowRing<std::remove_const_t<T>>& first) const {
  return {.data = first.data,
          .rows = first.rows,
          .width = first.width,
          .slot_stride = slot_bytes_ / int64_t{sizeof(T)}};
}

void AttentionLayer::Run(MatrixView<const BFloat16> x, Bf16View output) {
  const Lane main = context_.main();
  SideLane& side = context_.sides[0];
  NormInput(x);
  side.Follow(main.stream);
  ProjectWindow(side.lane());
  // Entries that close with a row are visible to it, so they are stored before anyone attends.
  if (weights_.compressor) StoreEntries(*weights_.compressor, /*is_index=*/false, side.lane());
  if (weights_.indexer) {
    SideLane& index_side = context_.sides[1];
    index_side.Follow(main.stream);
    StoreEntries(weights_.indexer->compressor, /*is_index=*/true, index_side.lane());
    weights_.indexer->weights_proj->Run(
        MatrixView<const BFloat16>(context_.Rows(scratch_.attention.normed)),
        context_.Rows(scratch_.index_weights), index_side.lane().workspace,
        index_side.lane().stream);
    ProjectLatent();
    // More rows of the query come where the scores lie before.
    const bool beside = context_.rows() <= kMaxStepRows;
    if (beside) {
      side.Follow(main.stream);
      ProjectQuery(side.lane());
    }
    ProjectIndexQuery();
    index_side.Join(main.stream);
    SelectEntries();
    if (!beside) ProjectQuery(main);
  } else {
    ProjectLatent();
    ProjectQuery(main);
  }
  side.Join(main.stream);
  Attend();
  if (!writes_ring_at_once_) WriteWindow();
  ProjectOutput(output);
}

void AttentionLayer::StoreWindow(MatrixView<const BFloat16> x) {
  NormInput(x);
  ProjectWindow(context_.main());
  if (!writes_ring_at_once_) WriteWindow();
}

// norm(x), as BF16 and as FP8 layers read it.
void AttentionLayer::NormInput(MatrixView<const BFloat16> x) {
  kernels::cuda::RmsNorm({.x = x,
                          .weight = weights_.norm.As<BFloat16>(),
                          .eps = context_.config.rms_norm_eps,
                          .y = context_.Rows(scratch_.attention.normed),
                          .quantized = context_.Rows(scratch_.attention.quantized)},
                         context_.stream);
}

// The finished window KV.
void AttentionLayer::ProjectWindow(const Lane& lane) {
  const Bf16View window = context_.Rows(scratch_.window);
  weights_.wkv->Run(ReadOnly(context_.Rows(scratch_.attention.quantized)), window, lane.workspace,
                    lane.stream);
  kernels::cuda::WindowKvParams params{.batch = context_.arrays.batch,
                                       .kv = window,
                                       .weight = weights_.kv_norm.As<BFloat16>(),
                                       .eps = context_.config.rms_norm_eps,
                                       .rope = rope_,
                                       .numerics = context_.numerics,
                                       .window = context_.config.sliding_window};
  if (writes_ring_at_once_) params.ring = Rings<BFloat16>(cache_.Window(0));
  kernels::cuda::WindowKv(params, lane.stream);
}

// The query's latent vector.
void AttentionLayer::ProjectLatent() {
  weights_.wq_a->Run(ReadOnly(context_.Rows(scratch_.attention.quantized)),
                     context_.Rows(scratch_.q_latent), scratch_.workspace, context_.stream);
  latent_ = context_.Rows(scratch_.q_latent_normed);
  kernels::cuda::RmsNorm({.x = context_.Rows(scratch_.q_latent),
                          .weight = weights_.q_norm.As<BFloat16>(),
                          .eps = context_.config.rms_norm_eps,
                          .quantized = latent_},
                         context_.stream);
}

void AttentionLayer::ProjectQuery(const Lane& lane) {
  const Bf16View q = context_.Rows(scratch_.q);
  weights_.wq_b->Run(ReadOnly(latent_), q, lane.workspace, lane.stream);
  kernels::cuda::QueryNormRope({.q = q,
                                .heads = context_.config.num_attention_heads,
                                .eps = context_.config.rms_norm_eps,
                                .rope = rope_},
                               lane.stream);
}

void AttentionLayer::StoreEntries(const CompressorWeights& weights, bool is_index,
                                  const Lane& lane) {
  const MatrixView<float> projections(
      is_index ? scratch_.index_projections.data : scratch_.projections.data, context_.rows(),
      weights.kv_gate->n());
  weights.kv_gate->Run(MatrixView<const BFloat16>(context_.Rows(scratch_.attention.normed)),
                       projections, lane.workspace, lane.stream);
  const bool is_csa = weights.ratio == ModelConfig::kCsaRatio;
  kernels::cuda::Compress(
      {.batch = context_.arrays.batch,
       .ratio = weights.ratio,
       .chunk = projections,
       .bias = weights.ape.As<float>(),
       .ring = Rings<float>(is_index ? cache_.IndexState(0) : cache_.KvState(0)),
       .weight = weights.norm.As<BFloat16>(),
       .eps = context_.config.rms_norm_eps,
       .rope = is_csa ? context_.csa_rope : context_.hca_rope,
       .numerics = context_.numerics,
       .pool = is_index ? cache_.IndexPool() : cache_.KvPool()},
      lane.stream);
}

void AttentionLayer::ProjectIndexQuery() {
  weights_.indexer->wq_b->Run(ReadOnly(latent_), context_.Rows(scratch_.index_q),
                              scratch_.workspace, context_.stream);
}

void AttentionLayer::SelectEntries() {
  const int heads = context_.config.index_n_heads;
  const Bf16View q = context_.Rows(scratch_.index_q);
  const Bf16View head_weights = context_.Rows(scratch_.index_weights);
  kernels::cuda::IndexQuery({.q = q.data,
                             .w = head_weights.data,
                             .rows = static_cast<int>(q.rows),
                             .heads = heads,
                             .rope = rope_,
                             .numerics = context_.numerics},
                            context_.stream);
  selected_ = context_.Rows(scratch_.selected);
  kernels::cuda::IndexSelect(
      {.batch = context_.arrays.batch,
       .q = q.data,
       .w = head_weights.data,
       .heads = heads,
       .keys = cache_.IndexPool(),
       .max_entries = static_cast<int>(context_.shape.positions / ModelConfig::kCsaRatio),
       .selected = selected_.data,
       .k = context_.index_topk,
       .scratch = scratch_.index_scratch,
       .scratch_bytes = kernels::cuda::kIndexSelectScratchBytes},
      context_.stream);
}

void AttentionLayer::Attend() {
  const ModelConfig& config = context_.config;
  kernels::cuda::SparseAttentionParams params{
      .batch = context_.arrays.batch,
      .q = scratch_.q.data,
      .heads = config.num_attention_heads,
      .sinks = weights_.sinks.As<float>(),
      .scale = 1.0f / std::sqrt(static_cast<float>(config.head_dim)),
      .window = config.sliding_window,
      .fixed_parts = context_.deterministic,
      .chunk = scratch_.window.data,
      .rings = Rings<const BFloat16>(cache_.Window(0)),
      .out = scratch_.q.data,
      .scratch = scratch_.attention_scratch,
  };
  if (weights_.compressor) {
    params.ratio = weights_.compressor->ratio;
    params.pool = cache_.KvPool();
    params.max_entries = static_cast<int>(context_.shape.positions / params.ratio);
  }
  if (selected_) {
    params.selected = selected_.data;
    params.k = context_.index_topk;
    params.max_entries = std::min(params.max_entries, params.k);
  }
  kernels::cuda::SparseAttention(params, context_.stream);
}

void AttentionLayer::WriteWindow() {
  kernels::cuda::WriteRings(context_.arrays.batch,
                            MatrixView<const BFloat16>(context_.Rows(scratch_.window)),
                            Rings<BFloat16>(cache_.Window(0)), context_.stream);
}

void AttentionLayer::ProjectOutput(Bf16View output) {
  const Bf16View attended = context_.Rows(scratch_.q);
  kernels::cuda::InverseRope(attended, context_.config.num_attention_heads, rope_, context_.stream);
  const Bf16View grouped = context_.Rows(scratch_.grouped);
  weights_.wo_a->Run(attended, grouped, scratch_.grouped_scratch, scratch_.workspace,
                     context_.stream);
  const auto quantized = context_.Rows(scratch_.grouped_quantized);
  kernels::cuda::Quantize(grouped, quantized, context_.stream);
  weights_.wo_b->Run(ReadOnly(quantized), output, scratch_.workspace, context_.stream);
}

}  // namespace baton::engine::cuda
