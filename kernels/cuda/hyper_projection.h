#pragma once

#include <cstdint>

#include "common/base/bf16.h"
#include "kernels/matrix.h"

struct CUstream_st;

namespace baton::kernels::cuda {

// (fn u) and sum u^2 of rows of streams, as partial sums over consecutive channels: kGroups groups,
// or, while rows are too few to fill the device with those, segments of groups.

inline constexpr int kFnParts = 3;  // BF16 numbers that make up an FP32 one
inline constexpr int kGroups = 16;
inline constexpr int kGroupSegments = 4;  // 1 in streams too narrow for that
inline constexpr int kHcStep = 64;        // channels that are added up at once

template <int kTiles>                             // of 8 mixes
inline constexpr int HcColumns = 8 * kTiles + 1;  // mixes, then the sum of squares

struct HcProjectParams {
  MatrixView<const BFloat16> streams;
  const void* fn = nullptr;  // as the variant wants it packed
  int segments = kGroups;    // of all channels
  bool by_segment = false;
  unsigned runs = 1;         // of channels, for as many blocks a row: `segments` with by_segment
  float* partial = nullptr;  // [segments or groups, rows, HcColumns]
};

// wgmma; see variants.h. `fn`: for every kHcStep channels a right operand (device/wgmma.cuh) whose
// rows are the mixes, padded to whole tiles, first of all first parts.
template <int kTiles>
void HcProjectSm90a(const HcProjectParams& params, CUstream_st* stream);
// mma.sync. `fn`: as a warp's fragments lie.
template <int kTiles>
void HcProjectPortable(const HcProjectParams& params, CUstream_st* stream);

}  // namespace baton::kernels::cuda
