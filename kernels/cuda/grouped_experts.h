#pragma once

#include <cstdint>

#include "common/base/bf16.h"
#include "kernels/matrix.h"

struct CUstream_st;

namespace baton::kernels::cuda {

// The routed experts of kernels/moe.h, from FP4 weights as the checkpoint holds them (e2m1 codes,
// an E8M0 scale per row and 32 columns), repacked at load to the order in which tensor cores want
// them. Two grouped products; a row of an expert's input is a slot (permute.h).
//
// Weights are widened to BF16 in registers, exactly, and activations are the BF16 values that the
// FP8 grid allows, so every product is exact; sums are FP32 in ascending steps of 16 columns. A
// slot's bits depend on nothing but its row and its expert's weights: not on the other slots, nor
// on the tile width, which is chosen from the expected number of slots an expert.
//
// Limits: D a multiple of 256, F of 128, at most kMaxExperts experts; sm_90a.

inline constexpr int kMaxExperts = 512;

// All experts of a layer. gate_up holds the rows of w1 and w3 interleaved, eight by eight.
// Codes and scales come in chunks of 256 rows and 64 columns, in the order in which a tile reads
// them; an expert's largest scale is kept apart, so that the rest fit BF16 whatever the checkpoint
// says (groups more than 2^125 below the largest count as zero).
struct ExpertBank {
  int experts = 0;
  int64_t d = 0;
  int64_t f = 0;
  std::byte* gate_up = nullptr;  // [experts] of GateUpBytes, aligned to 16 bytes
  std::byte* down = nullptr;     // [experts] of DownBytes
  float* factors = nullptr;      // [experts, 2] largest scale of gate_up and of down
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

// hidden[s] = QuantizeActivations(bf16(weight[s] * silu(a) * b)) with a, b as in kernels/moe.h.
struct ExpertGateUpParams {
  ExpertBank bank;
  ExpertSlots slots;
  MatrixView<const BFloat16> x;  // [rows, D], quantised; rows 16-byte aligned
  float limit = 10;
  MatrixView<BFloat16> hidden;  // [count, F], 16-byte aligned
};
void ExpertGateUp(const ExpertGateUpParams& params, CUstream_st* stream);

// y[s] = bf16(w2 hidden[s])
struct ExpertDownParams {
  ExpertBank bank;
  ExpertSlots slots;
  MatrixView<const BFloat16> hidden;  // [count, F]
  MatrixView<BFloat16> y;             // [count, D], 16-byte aligned
};
void ExpertDown(const ExpertDownParams& params, CUstream_st* stream);

}  // namespace baton::kernels::cuda
