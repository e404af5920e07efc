#pragma once

#include <cstdint>

#include "common/base/bf16.h"
#include "kernels/cuda/fp8_rows.h"
#include "kernels/matrix.h"

struct CUstream_st;

namespace baton::kernels::cuda {

// The routed experts of kernels/moe.h, from FP4 weights as the checkpoint holds them (e2m1 codes,
// an E8M0 scale per row and 32 columns), repacked at load to the order in which tensor cores want
// them. Two grouped products; a row of an expert's input is a slot (permute.h).
//
// Weights are widened to E4M3 in registers, exactly, and activations are the codes of the FP8 grid,
// so every product is exact; tensor cores sum 128 columns, with about 14 bits below the largest
// term, and those sums, scaled, are added in FP32. A slot's bits depend on nothing but its row and
// its expert's weights: not on the other slots, nor on the tile width, which is chosen from the
// expected number of slots an expert.
//
// Limits: D a multiple of 256, F of 128, at most kMaxExperts experts.

inline constexpr int kMaxExperts = 512;

// All experts of a layer. gate_up holds the rows of w1 and w3 interleaved, eight by eight.
// Codes and scales come in blocks of 64 rows and 128 columns, in the order in which a tile reads
// them, and a row's largest scale apart. Within a row scales may lie eleven powers of two apart; a
// group further below the largest is rounded to the unit of the eleventh (that is, by less than
// 2^-12 of it). A row with a scale of 255, which means NaN, is NaN; scales below 2^-120 become
// zero.
struct ExpertBank {
  int experts = 0;
  int64_t d = 0;
  int64_t f = 0;
  std::byte* gate_up = nullptr;  // [experts] of GateUpBytes, aligned to 16 bytes
  std::byte* down = nullptr;     // [experts] of DownBytes
  float* row_scales = nullptr;   // [experts, 2 F + D] of the rows of gate_up, then of down
};
int64_t GateUpBytes(int64_t d, int64_t f);  // per expert
int64_t DownBytes(int64_t d, int64_t f);

// Fills one expert of a bank from the checkpoint's tensors, all in device memory:
// codes w1, w3 [F, D / 2], w2 [D, F / 2], the even column in the low nibble; scales w1, w3
// [F, D / 32], w2 [D, F / 32].
struct Fp4Tensor {
  const uint8_t* codes = nullptr;
  const uint8_t* scales = nullptr;
};
void PackExpert(const Fp4Tensor& w1, const Fp4Tensor& w2, const Fp4Tensor& w3, int expert,
                const ExpertBank& bank, CUstream_st* stream);

// Which slots each expert has; see permute.h.
struct ExpertSlots {
  int64_t count = 0;               // of the launch: rows * k
  const int32_t* begin = nullptr;  // [experts + 1] first slot of each expert
  const int32_t* row = nullptr;    // [count] the slot's row of x
  const float* weight = nullptr;   // [count] its routing weight
};

// hidden[s] = QuantizeActivations(weight[s] * silu(a) * b) with a, b as in kernels/moe.h.
struct ExpertGateUpParams {
  ExpertBank bank;
  ExpertSlots slots;
  Fp8Rows x;  // [rows, D]
  float limit = 10;
  MutableFp8Rows hidden;  // [count, F]
};
// The fastest variant that the current device runs, and mma.sync on any: what they round is the
// same, but tensor cores add up in their own ways.
void ExpertGateUp(const ExpertGateUpParams& params, CUstream_st* stream);
void ExpertGateUpPortable(const ExpertGateUpParams& params, CUstream_st* stream);

// y[s] = bf16(w2 hidden[s])
struct ExpertDownParams {
  ExpertBank bank;
  ExpertSlots slots;
  Fp8Rows hidden;          // [count, F]
  MatrixView<BFloat16> y;  // [count, D], 16-byte aligned
};
void ExpertDown(const ExpertDownParams& params, CUstream_st* stream);
void ExpertDownPortable(const ExpertDownParams& params, CUstream_st* stream);

}  // namespace baton::kernels::cuda
