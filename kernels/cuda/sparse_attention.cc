#include "kernels/cuda/sparse_attention.h"

#include <algorithm>
#include <bit>

#include "common/base/check.h"
#include "kernels/cuda/sparse_attention_plan.h"
#include "kernels/cuda/variants.h"
#include "kernels/runtime/device.h"

namespace baton::kernels::cuda {

namespace {

constexpr int kFixedPartTiles = 10;

int Tiles(int candidates) { return (candidates + kKvTile - 1) / kKvTile; }

// Of a launch; all heads count.
int64_t PartsOf(const SparseAttentionParams& params, const AttentionPlan& plan) {
  return int64_t{plan.rows} * params.heads * plan.splits;
}

// The first launch. All variants split alike.
AttentionPlan MakePlan(const SparseAttentionParams& params, int head_tile) {
  AttentionPlan plan;
  plan.head_tile = head_tile;
  plan.head_tiles = (params.heads + head_tile - 1) / head_tile;
  const int processors = CurrentDevice().multiprocessors;
  const int wide_tiles = (params.heads + kHeadTile - 1) / kHeadTile;
  const int tiles = Tiles(params.window) + Tiles(params.max_entries);
  plan.rows = params.batch.rows;
  if (params.fixed_parts) {
    plan.part_tiles = std::max(kFixedPartTiles, Tiles(params.window) + Tiles(params.k));
    plan.splits = (tiles + plan.part_tiles - 1) / plan.part_tiles;
    // Parts of as many rows as keep the device busy have room.
    if (plan.splits > 1) {
      plan.rows = std::min(plan.rows, std::max(1, processors / (plan.splits * wide_tiles)));
    }
  } else {
    // A row is split only as far as there are multiprocessors for its parts.
    const int64_t pieces = std::max<int64_t>(1, int64_t{params.batch.rows} * wide_tiles);
    plan.splits = static_cast<int>(std::clamp<int64_t>(processors / pieces, 1, tiles));
  }
  const int64_t parts = PartsOf(params, plan);
  plan.partial_outputs = params.scratch;
  plan.partial_maxima = params.scratch + parts * kKvDim;
  plan.partial_sums = plan.partial_maxima + parts;
  return plan;
}

void Check(const SparseAttentionParams& params) {
  BATON_CHECK(params.heads > 0 && (params.heads <= kHeadTile || params.heads % kHeadTile == 0))
      << "attention heads " << params.heads;
  BATON_CHECK(params.window > 0) << "window " << params.window;
  if (params.ratio == 0) return;
  BATON_CHECK(params.pool.format == EntryFormat::kBf16 ||
              params.pool.format == EntryFormat::kFp8Packed)
      << "attention over entries of format " << static_cast<int>(params.pool.format);
  BATON_CHECK(params.pool.head_dim == kKvDim) << "entry width " << params.pool.head_dim;
  BATON_CHECK(std::has_single_bit(static_cast<unsigned>(params.pool.entries_per_page)))
      << "entries a page " << params.pool.entries_per_page;
}

using LaunchVariant = void (*)(const SparseAttentionParams&, const AttentionPlan&, CUstream_st*);

void Run(LaunchVariant launch, int head_tile, const SparseAttentionParams& params,
         CUstream_st* stream) {
  Check(params);
  AttentionPlan plan = MakePlan(params, head_tile);
  for (; plan.first_row < params.batch.rows; plan.first_row += plan.rows) {
    plan.rows = std::min(plan.rows, params.batch.rows - plan.first_row);
    plan.items = int64_t{plan.rows} * plan.head_tiles * plan.splits;
    plan.blocks = static_cast<int>(std::min<int64_t>(plan.items, CurrentDevice().multiprocessors));
    launch(params, plan, stream);
    if (plan.splits > 1) CombineSplits(params, plan, stream);
  }
}

}  // namespace

int64_t SparseAttentionScratchBytes(const SparseAttentionParams& params) {
  const AttentionPlan plan = MakePlan(params, kHeadTile);
  if (plan.splits == 1) return 0;
  return PartsOf(params, plan) * (kKvDim + 2) * static_cast<int64_t>(sizeof(float));
}

void SparseAttention(const SparseAttentionParams& params, CUstream_st* stream) {
  if (HasSm90a()) return SparseAttentionSm90a(params, stream);
  SparseAttentionPortable(params, stream);
}

void SparseAttentionSm90a(const SparseAttentionParams& params, CUstream_st* stream) {
  Run(LaunchAttentionSm90a, kHeadTile, params, stream);
}
void SparseAttentionPortable(const SparseAttentionParams& params, CUstream_st* stream) {
  Run(LaunchAttentionPortable, kPortableHeadTile, params, stream);
}

}  // namespace baton::kernels::cuda
