#include "kernels/cuda/sparse_attention.h"

#include <algorithm>
#include <bit>

#include "common/base/check.h"
#include "kernels/cuda/sparse_attention_plan.h"
#include "kernels/cuda/variants.h"
#include "kernels/runtime/device.h"

namespace baton::kernels::cuda {

namespace {

constexpr int kDim = 512;
constexpr int kWideHeadTile = 64;
constexpr int kTile = 64;

// A row is split only as far as there are multiprocessors for its parts; all variants split alike.
AttentionPlan MakePlan(const SparseAttentionParams& params, int head_tile) {
  AttentionPlan plan;
  plan.head_tile = head_tile;
  plan.head_tiles = (params.heads + head_tile - 1) / head_tile;
  const int processors = CurrentDevice().multiprocessors;
  const int wide_tiles = (params.heads + kWideHeadTile - 1) / kWideHeadTile;
  const int64_t pieces = std::max<int64_t>(1, int64_t{params.batch.rows} * wide_tiles);
  const int tiles = (params.window + kTile - 1) / kTile + (params.max_entries + kTile - 1) / kTile;
  plan.splits = static_cast<int>(std::clamp<int64_t>(processors / pieces, 1, tiles));
  plan.items = int64_t{params.batch.rows} * plan.head_tiles * plan.splits;
  plan.blocks = static_cast<int>(std::min<int64_t>(plan.items, processors));
  const int64_t parts = int64_t{params.batch.rows} * params.heads * plan.splits;
  plan.partial_outputs = params.scratch;
  plan.partial_maxima = params.scratch + parts * kDim;
  plan.partial_sums = plan.partial_maxima + parts;
  return plan;
}

void Check(const SparseAttentionParams& params) {
  BATON_CHECK(params.heads > 0 &&
              (params.heads <= kWideHeadTile || params.heads % kWideHeadTile == 0))
      << "attention heads " << params.heads;
  BATON_CHECK(params.window > 0) << "window " << params.window;
  if (params.ratio == 0) return;
  BATON_CHECK(params.pool.format == EntryFormat::kBf16 ||
              params.pool.format == EntryFormat::kFp8Packed)
      << "attention over entries of format " << static_cast<int>(params.pool.format);
  BATON_CHECK(params.pool.head_dim == kDim) << "entry width " << params.pool.head_dim;
  BATON_CHECK(std::has_single_bit(static_cast<unsigned>(params.pool.entries_per_page)))
      << "entries a page " << params.pool.entries_per_page;
}

using LaunchVariant = void (*)(const SparseAttentionParams&, const AttentionPlan&, CUstream_st*);

void Run(LaunchVariant launch, int head_tile, const SparseAttentionParams& params,
         CUstream_st* stream) {
  Check(params);
  if (params.batch.rows == 0) return;
  const AttentionPlan plan = MakePlan(params, head_tile);
  launch(params, plan, stream);
  if (plan.splits > 1) CombineSplits(params, plan, stream);
}

}  // namespace

int64_t SparseAttentionScratchBytes(const SparseAttentionParams& params) {
  const AttentionPlan plan = MakePlan(params, kWideHeadTile);
  if (plan.splits == 1) return 0;
  const int64_t parts = int64_t{params.batch.rows} * params.heads * plan.splits;
  return parts * (kDim + 2) * static_cast<int64_t>(sizeof(float));
}

void SparseAttention(const SparseAttentionParams& params, CUstream_st* stream) {
  if (HasSm90a()) return SparseAttentionSm90a(params, stream);
  SparseAttentionPortable(params, stream);
}

void SparseAttentionSm90a(const SparseAttentionParams& params, CUstream_st* stream) {
  Run(LaunchAttentionSm90a, kWideHeadTile, params, stream);
}
void SparseAttentionPortable(const SparseAttentionParams& params, CUstream_st* stream) {
  Run(LaunchAttentionPortable, kPortableHeadTile, params, stream);
}

}  // namespace baton::kernels::cuda
