#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "common/base/bf16.h"
#include "kernels/cuda/fp8_rows.h"
#include "kernels/matrix.h"

struct CUstream_st;

namespace baton::kernels::cuda {

// Between ranks that each hold some of the experts (kernels/moe.h: MoePart, MoeJoin). On the device
// a layer is
//   PackRows, rows dispatched: every rank gathers those of all
//   UnpackRows -> AssignSlots (with first_expert) -> ExpertGateUp -> ExpertDown -> SumSlots
//   sums given back to the ranks of their rows, AddRanks
// D is a multiple of 128, k at most 32.

// A row as it is dispatched to the ranks: codes [D] | scales FP32 [D / 128] |
// expert ids int32 [k] | weights FP32 [k], and padding to 16 bytes.
int64_t DispatchedRowBytes(int64_t d, int64_t k);

struct PackRowsParams {
  Fp8Rows x;                          // [rows, D]
  MatrixView<const int32_t> experts;  // [rows, k] without gaps; -1: none
  const float* weights = nullptr;     // [rows, k]
  std::byte* out = nullptr;           // [rows, DispatchedRowBytes], aligned to 16 bytes
};
void PackRows(const PackRowsParams& params, CUstream_st* stream);

struct UnpackRowsParams {
  const std::byte* rows = nullptr;
  MutableFp8Rows x;             // out [rows, D]
  MatrixView<int32_t> experts;  // out [rows, k] without gaps
  float* weights = nullptr;     // out [rows, k]
};
void UnpackRows(const UnpackRowsParams& params, CUstream_st* stream);

// sum = y of the row's slots (-1: none) from 0 in their order, FP32.
struct SumSlotsParams {
  MatrixView<const BFloat16> y;    // [slots, D]
  MatrixView<const int32_t> slot;  // [rows, k] of AssignSlots
  MatrixView<float> sum;           // out [rows, D], rows aligned to 16 bytes
};
void SumSlots(const SumSlotsParams& params, CUstream_st* stream);

// out = bf16(sums of the ranks from 0 in their order, then shared), FP32 sum.
inline constexpr int kMaxRanks = 64;
struct AddRanksParams {
  std::array<const float*, kMaxRanks> sums = {};  // of each rank [rows, D] without gaps
  int ranks = 0;
  MatrixView<const BFloat16> shared;  // [rows, D]
  MatrixView<BFloat16> out;           // [rows, D]; may be shared
};
void AddRanks(const AddRanksParams& params, CUstream_st* stream);

}  // namespace baton::kernels::cuda
