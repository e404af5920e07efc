#pragma once

#include "kernels/cpu/isa/isa.h"
#include "kernels/cpu/isa/simd.h"

// The entries of this instruction set's table, each defined in a file of this folder.

namespace baton::kernels::BATON_ISA {

void Widen(const BFloat16* x, int64_t n, float* y);
void Gemm(const GemmBlock& block);
void FakeQuantFp8(const BFloat16* x, BFloat16* y, int n, int group);
void FakeQuantFp4(const BFloat16* x, BFloat16* y, int n);
void DecodeE4m3Row(const uint8_t* codes, int n, float scale, BFloat16* y);
void Hadamard128(BFloat16* x);
float MeanSquare(const BFloat16* x, int n);
void ScaleRow(const BFloat16* x, const float* weight, float factor, int n, BFloat16* y);
void HcMix(const HcMixBlock& block);
void HcRead(const BFloat16* streams, const float* pre, int64_t d, BFloat16* x);
void HcWrite(const BFloat16* o, const float* post, const float* comb, int64_t d, BFloat16* streams);
void Pool(const PoolBlock& block);
void AttendRow(const AttentionRow& row);
void Interleave(const BFloat16* const* rows, int n, float* panel);
void ScoreIndexBlock(const IndexBlock& block);
void SumRows(const BFloat16* rows, int64_t count, int64_t n, BFloat16* y);
void Swiglu(const BFloat16* gate, const BFloat16* up, float weight, float limit, int n,
            BFloat16* v);

extern const IsaKernels kTable;

}  // namespace baton::kernels::BATON_ISA
