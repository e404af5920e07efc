#pragma once

#include <cstdint>

#include "kernels/cuda/sparse_attention.h"

namespace baton::kernels::cuda {

inline constexpr int kKvDim = 512;
inline constexpr int kKvTile = 64;    // candidates of a tile
inline constexpr int kHeadTile = 64;  // heads of a block, by wgmma
inline constexpr int kPortableHeadTile = 32;
inline constexpr float kLog2E = 1.4426950408889634f;

// How the work of a launch is cut, and where the parts of rows that were split go: outputs not yet
// divided by their sum [rows, heads, splits, 512], and [rows, heads, splits] maxima (of scaled
// scores, in units of log 2) and sums. A row of one part has its output stored at once.
struct AttentionPlan {
  int first_row = 0;  // of the launch
  int rows = 0;
  int head_tile = kHeadTile;  // heads of an item
  int head_tiles = 1;
  int splits = 1;      // parts of a row, at most
  int part_tiles = 0;  // candidates of a part; 0: all parts of a row are alike
  int64_t items = 0;   // rows x head_tiles x splits, the last fastest
  int blocks = 0;      // that share them, where they are shared
  float* partial_outputs = nullptr;
  float* partial_maxima = nullptr;
  float* partial_sums = nullptr;
};

void LaunchAttentionSm90a(const SparseAttentionParams& params, const AttentionPlan& plan,
                          CUstream_st* stream);
void LaunchAttentionPortable(const SparseAttentionParams& params, const AttentionPlan& plan,
                             CUstream_st* stream);

// Joins the parts of the launch's rows and adds the sink to the denominator.
void CombineSplits(const SparseAttentionParams& params, const AttentionPlan& plan,
                   CUstream_st* stream);

}  // namespace baton::kernels::cuda
