#include "common/base/check.h"
#include "kernels/cuda/index_logits.h"
#include "kernels/cuda/index_rows.cuh"
#include "kernels/runtime/error.h"

// Index logits of a device as the CPU op has them: FP32 sums over ascending channels and heads, no
// tensor cores. Linked in place of the product's, they make a baton-recall that selects as an index
// in FP32 does: under reference numerics a page of bf16 keys holds the model's values exactly.

namespace baton::kernels::cuda {
namespace {

constexpr int kTile = 64;   // rows and keys of a block
constexpr int kPitch = 68;  // of a channel's line: 16-byte loads without bank conflicts
constexpr int kThreads = 256;
constexpr int kSide = 4;  // rows and keys of a thread

struct Shared {
  float keys[kIndexDim][kPitch];
  float queries[kIndexDim][kPitch];
};

__device__ void LoadLine(const BFloat16* source, int channel, float (&line)[kIndexDim][kPitch],
                         int column) {
  for (int i = 0; i < 8; ++i) {
    line[channel + i][column] =
        source == nullptr ? 0.0f : __uint_as_float(uint32_t{source[channel + i].bits} << 16);
  }
}

__global__ void __launch_bounds__(kThreads)
    Fp32Kernel(const __grid_constant__ IndexLogitsParams params) {
  extern __shared__ __align__(16) uint8_t dynamic_shared[];
  auto& shared = *reinterpret_cast<Shared*>(dynamic_shared);
  const int row_begin = params.first_row + blockIdx.y * kTile;
  const int row_end = min(row_begin + kTile, params.first_row + params.rows);
  const int key_begin = blockIdx.x * kTile;
  const RowRun run = NextRun(params, row_begin, row_end);
  if (key_begin >= run.limit) return;
  const KeyPages pages = PagesOf(params, run.sequence);
  const int piece = threadIdx.x % 16 * 8;
  for (int key = threadIdx.x / 16; key < kTile; key += kThreads / 16) {
    const int entry = key_begin + key;
    const BFloat16* source = nullptr;
    if (entry < run.limit) {
      source = reinterpret_cast<const BFloat16*>(pages.Page(entry)) +
               pages.IndexInPage(entry) * kIndexDim;
    }
    LoadLine(source, piece, shared.keys, key);
  }
  const int row = threadIdx.x / 16 * kSide;
  const int key = threadIdx.x % 16 * kSide;
  float scores[kSide][kSide] = {};
  for (int head = 0; head < params.heads; ++head) {
    __syncthreads();
    for (int i = threadIdx.x / 16; i < kTile; i += kThreads / 16) {
      const int64_t line = int64_t{row_begin + i} * params.heads + head;
      LoadLine(row_begin + i < row_end ? params.q + line * kIndexDim : nullptr, piece,
               shared.queries, i);
    }
    __syncthreads();
    float dots[kSide][kSide] = {};
#pragma unroll 8
    for (int channel = 0; channel < kIndexDim; ++channel) {
      const float4 q = *reinterpret_cast<const float4*>(&shared.queries[channel][row]);
      const float4 k = *reinterpret_cast<const float4*>(&shared.keys[channel][key]);
      const float rows[kSide] = {q.x, q.y, q.z, q.w};
      const float keys[kSide] = {k.x, k.y, k.z, k.w};
      for (int i = 0; i < kSide; ++i) {
        for (int j = 0; j < kSide; ++j) dots[i][j] = fmaf(rows[i], keys[j], dots[i][j]);
      }
    }
    for (int i = 0; i < kSide && row_begin + row + i < row_end; ++i) {
      const int64_t line = int64_t{row_begin + row + i} * params.heads + head;
      const float weight = __uint_as_float(uint32_t{params.w[line].bits} << 16);
      for (int j = 0; j < kSide; ++j) {
        scores[i][j] = fmaf(weight, Relu::Of(dots[i][j]), scores[i][j]);
      }
    }
  }
  for (int i = 0; i < kSide; ++i) {
    const ScoreRow target = ScoresOf(params, run, row_begin + row + i);
    for (int j = 0; j < kSide; ++j) target.Store(key_begin + key + j, scores[i][j]);
  }
}

}  // namespace

void IndexLogits(const IndexLogitsParams& params, CUstream_st* stream) {
  CheckIndexLogits(params);
  BATON_CHECK(params.batch.sequences == 1) << "one sequence, not " << params.batch.sequences;
  BATON_CHECK(params.keys.format == EntryFormat::kBf16) << "index keys are not bf16";
  if (params.rows == 0 || params.max_entries == 0) return;
  CheckCuda(
      cudaFuncSetAttribute(Fp32Kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared)),
      "cudaFuncSetAttribute");
  const dim3 grid((params.max_entries + kTile - 1) / kTile, (params.rows + kTile - 1) / kTile);
  Fp32Kernel<<<grid, kThreads, sizeof(Shared), stream>>>(params);
  CheckLaunch("index logits in FP32");
}

}  // namespace baton::kernels::cuda
