#pragma once

#include <array>

#include "engine/cuda/pass_arrays.h"
#include "engine/cuda/scratch.h"
#include "engine/cuda/side_lane.h"
#include "engine/model/config.h"
#include "engine/model/forward.h"
#include "kernels/cuda/fp8_rows.h"
#include "kernels/cuda/rope.h"
#include "kernels/matrix.h"

// What the parts of the forward pass share: the rows of the pass, options, tables and scratch
// memory. Everything is issued on one stream, or on side lanes that have joined it before the part
// returns; nothing waits for the device.

namespace baton::engine::cuda {

class ExpertRanks;

struct PassContext {
  const ModelConfig& config;
  Numerics numerics;
  bool deterministic;
  int index_topk;
  PassShape shape;
  PassArrays::View arrays;
  const Scratch& scratch;
  kernels::cuda::EntryRope csa_rope;  // of entries of 4 tokens
  kernels::cuda::EntryRope hca_rope;  // of 128
  CUstream_st* stream;
  std::array<SideLane, kSideLanes>& sides;
  ExpertRanks* ranks;  // null: all experts are here

  int64_t rows() const { return shape.rows; }
  Lane main() const { return {stream, scratch.workspace}; }

  // The scratch buffer as it is used in this pass.
  template <typename T>
  kernels::MatrixView<T> Rows(kernels::MatrixView<T> buffer) const {
    return buffer.Rows(0, rows());
  }
  kernels::cuda::MutableFp8Rows Rows(kernels::cuda::MutableFp8Rows buffer) const {
    return Shape(buffer, rows());
  }
  // With so many rows; products read them in groups of 16.
  static kernels::cuda::MutableFp8Rows Shape(kernels::cuda::MutableFp8Rows buffer, int64_t rows);
};

}  // namespace baton::engine::cuda
