#include "engine/model/attention_layer.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/base/check.h"
#include "engine/model/explain.h"
#include "kernels/compressor.h"
#include "kernels/entry_store.h"
#include "kernels/gemm.h"
#include "kernels/grouped_output.h"
#include "kernels/index_select.h"
#include "kernels/quantize.h"
#include "kernels/rms_norm.h"
#include "kernels/sparse_attention.h"
#include "kernels/window_kv.h"

namespace baton::engine {

using kernels::MatrixView;
using kernels::PageTable;

AttentionLayer::AttentionLayer(const AttentionWeights& weights, const LayerCache& cache,
                               const Pass& pass, ForwardContext& context)
    : weights_(weights),
      cache_(cache),
      pass_(pass),
      context_(context),
      rope_(cache.kind() == LayerKind::kWindow ? context.rope : context.compress_rope) {}

void AttentionLayer::Run(MatrixView<const BFloat16> x, Bf16View output) {
  ProjectInput(x);
  ProjectQuery();
  // Entries that close with a row are visible to it, so they are stored before anyone attends.
  if (weights_.compressor) StoreEntries(*weights_.compressor, /*is_index=*/false);
  if (weights_.indexer) {
    StoreEntries(weights_.indexer->compressor, /*is_index=*/true);
    SelectEntries();
  }
  Attend();
  WriteWindow();
  ProjectOutput(output);
}

void AttentionLayer::StoreWindow(MatrixView<const BFloat16> x) {
  BATON_CHECK(cache_.kind() == LayerKind::kWindow);
  ProjectInput(x);
  WriteWindow();
}

// norm(x), then the query's latent vector and the finished window KV.
void AttentionLayer::ProjectInput(MatrixView<const BFloat16> x) {
  const ModelConfig& config = context_.config;
  normed_ = context_.scratch.normed.Shape(pass_.rows(), config.hidden_size);
  quantized_ = context_.scratch.quantized.Shape(pass_.rows(), config.hidden_size);
  kernels::RmsNorm({.x = x,
                    .weight = weights_.norm,
                    .eps = config.rms_norm_eps,
                    .y = normed_,
                    .y_quantized = quantized_},
                   context_.pool);
  const Bf16View latent_kv =
      context_.scratch.q_latent_kv.Shape(pass_.rows(), config.q_lora_rank + config.head_dim);
  kernels::Gemm(quantized_, weights_.wq_a_wkv, latent_kv, context_.pool);
  q_latent_ = latent_kv.Columns(0, config.q_lora_rank);
  window_ = latent_kv.Columns(config.q_lora_rank, config.head_dim);
  kernels::WindowKv({.kv = window_,
                     .weight = weights_.kv_norm,
                     .eps = config.rms_norm_eps,
                     .rope = rope_,
                     .numerics = context_.numerics},
                    context_.pool);
}

void AttentionLayer::ProjectQuery() {
  const ModelConfig& config = context_.config;
  const Bf16View normed = context_.scratch.q_latent.Shape(pass_.rows(), config.q_lora_rank);
  kernels::RmsNorm({.x = q_latent_,
                    .weight = weights_.q_norm,
                    .eps = config.rms_norm_eps,
                    .y_quantized = normed},
                   context_.pool);
  q_latent_ = normed;
  q_ = context_.scratch.q.Shape(pass_.rows(), weights_.wq_b.rows());
  kernels::Gemm(q_latent_, weights_.wq_b, q_, context_.pool);
  kernels::QueryNormRope(
      {.q = q_, .heads = config.num_attention_heads, .eps = config.rms_norm_eps, .rope = rope_},
      context_.pool);
}

// Compressor: projects the rows, pools and stores every entry whose last token is among them, and
// leaves the rows in the ring for entries that close later.
void AttentionLayer::StoreEntries(const CompressorWeights& weights, bool is_index) {
  const int64_t width = weights.kv_gate.rows();
  const MatrixView<float> projections = context_.scratch.projections.Shape(pass_.rows(), width);
  kernels::Gemm(normed_, weights.kv_gate, projections, context_.pool);
  const MatrixView<const float> ape(weights.ape.data(), weights.ratio, width / 2);
  for (const Segment& segment : pass_.segments) {
    const MatrixView<float> chunk = projections.Rows(segment.first_row, segment.rows);
    const kernels::RowRing<float> ring =
        is_index ? cache_.IndexState(segment.slot) : cache_.KvState(segment.slot);
    kernels::AddPositionBias(chunk, ape, segment.start);
    const int64_t first_entry = segment.start / weights.ratio;
    const int64_t entries = (segment.start + segment.rows) / weights.ratio - first_entry;
    if (entries > 0) {
      const Bf16View pooled = context_.scratch.pooled.Shape(entries, weights.head_dim);
      kernels::PoolEntries({.ratio = weights.ratio,
                            .head_dim = weights.head_dim,
                            .first_entry = first_entry,
                            .chunk_start = segment.start,
                            .chunk = chunk,
                            .ring = ring,
                            .pooled = pooled},
                           context_.pool);
      if (is_index && context_.observer.on_index_entries) {
        context_.observer.on_index_entries(cache_.layer(), first_entry, pooled);
      }
      kernels::StoreEntries({.pooled = pooled,
                             .first_entry = first_entry,
                             .ratio = weights.ratio,
                             .weight = weights.norm,
                             .eps = context_.config.rms_norm_eps,
                             .rope = &context_.compress_rope_table,
                             .numerics = context_.numerics,
                             .pool = is_index ? cache_.IndexPool() : cache_.KvPool(),
                             .pages = PageTable{segment.pages}},
                            context_.pool);
    }
    kernels::WriteRows(chunk, segment.start, ring);
  }
}

void AttentionLayer::SelectEntries() {
  const IndexerWeights& weights = *weights_.indexer;
  const int heads = context_.config.index_n_heads;
  const Bf16View q = context_.scratch.index_q.Shape(pass_.rows(), weights.wq_b.rows());
  kernels::Gemm(q_latent_, weights.wq_b, q, context_.pool);
  const Bf16View head_weights = context_.scratch.index_weights.Shape(pass_.rows(), heads);
  kernels::Gemm(normed_, weights.weights_proj, head_weights, context_.pool);
  if (context_.observer.on_index_query) ReportIndexQueries(q, head_weights);
  kernels::IndexQuery({.q = q, .heads = heads, .rope = rope_, .numerics = context_.numerics},
                      context_.pool);
  kernels::ScaleIndexWeights(head_weights);
  selected_ = context_.scratch.selected.Shape(pass_.rows(), context_.index_topk);
  std::vector<kernels::IndexSelectParams> sequences;
  for (const Segment& segment : pass_.segments) {
    sequences.push_back({.q = q.Rows(segment.first_row, segment.rows),
                         .w = head_weights.Rows(segment.first_row, segment.rows),
                         .heads = heads,
                         .start = segment.start,
                         .keys = cache_.IndexPool(),
                         .pages = PageTable{segment.pages},
                         .selected = selected_.Rows(segment.first_row, segment.rows)});
  }
  kernels::IndexSelect(sequences, context_.pool);
  if (context_.observer.on_selection) ReportSelection();
  if (context_.observer.on_scores) {
    for (size_t i = 0; i < sequences.size(); ++i) {
      ReportScores(sequences[i], cache_.layer(), pass_.first_row + pass_.segments[i].first_row,
                   context_);
    }
  }
}

void AttentionLayer::ReportIndexQueries(MatrixView<const BFloat16> q,
                                        MatrixView<const BFloat16> w) const {
  for (int64_t row = 0; row < pass_.rows(); ++row) {
    context_.observer.on_index_query(cache_.layer(), pass_.first_row + row,
                                     {q.Row(row), static_cast<size_t>(q.cols)},
                                     {w.Row(row), static_cast<size_t>(w.cols)});
  }
}

void AttentionLayer::ReportSelection() const {
  for (int64_t row = 0; row < pass_.rows(); ++row) {
    const std::span<const int32_t> slots(selected_.Row(row), selected_.cols);
    const auto used = std::find(slots.begin(), slots.end(), -1) - slots.begin();
    context_.observer.on_selection(cache_.layer(), pass_.first_row + row, slots.first(used));
  }
}

void AttentionLayer::Attend() {
  const ModelConfig& config = context_.config;
  attended_ = context_.scratch.attended.Shape(pass_.rows(), q_.cols);
  std::vector<kernels::SparseAttentionParams> sequences;
  for (const Segment& segment : pass_.segments) {
    kernels::SparseAttentionParams& params = sequences.emplace_back();
    params = {
        .q = q_.Rows(segment.first_row, segment.rows),
        .heads = config.num_attention_heads,
        .sinks = weights_.sinks,
        .scale = 1.0f / std::sqrt(static_cast<float>(config.head_dim)),
        .start = segment.start,
        .window = config.sliding_window,
        .chunk = window_.Rows(segment.first_row, segment.rows),
        .ring = cache_.Window(segment.slot),
        .out = attended_.Rows(segment.first_row, segment.rows),
    };
    if (weights_.compressor) {
      params.ratio = weights_.compressor->ratio;
      params.pool = cache_.KvPool();
      params.pages = PageTable{segment.pages};
    }
    if (selected_) params.selected = selected_.Rows(segment.first_row, segment.rows);
  }
  kernels::SparseAttention(sequences, context_.pool);
  if (selected_ && context_.observer.on_attention) {
    for (size_t i = 0; i < sequences.size(); ++i) {
      ReportAttention(sequences[i], cache_.layer(), pass_.first_row + pass_.segments[i].first_row,
                      context_.observer);
    }
  }
}

void AttentionLayer::WriteWindow() {
  for (const Segment& segment : pass_.segments) {
    kernels::WriteRows(window_.Rows(segment.first_row, segment.rows), segment.start,
                       cache_.Window(segment.slot));
  }
}

void AttentionLayer::ProjectOutput(Bf16View output) {
  kernels::InverseRope(attended_, context_.config.num_attention_heads, rope_, context_.pool);
  const Bf16View grouped = context_.scratch.grouped.Shape(pass_.rows(), weights_.wo_b.cols());
  kernels::GroupedOutput(attended_, weights_.wo_a, grouped, context_.pool);
  kernels::QuantizeActivations(grouped, grouped, context_.pool);
  kernels::Gemm(grouped, weights_.wo_b, output, context_.pool);
}

}  // namespace baton::engine
