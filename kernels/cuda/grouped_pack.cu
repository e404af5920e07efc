#include "common/base/check.h"
#include "kernels/cuda/grouped_experts.h"
#include "kernels/cuda/grouped_weights.cuh"
#include "kernels/runtime/error.h"

namespace baton::kernels::cuda {

namespace {

// The rows of a product's weight: those of one tensor, or of two interleaved eight by eight.
struct PackSource {
  Fp4Tensor tensors[2];
  int count = 1;
  int64_t columns = 0;

  __device__ int Tensor(int64_t row) const { return count == 1 ? 0 : row / 8 % 2; }
  __device__ int64_t Row(int64_t row) const { return count == 1 ? row : row / 16 * 8 + row % 8; }
  __device__ uint32_t Code(int64_t row, int64_t column) const {
    const uint8_t pair = tensors[Tensor(row)].codes[(Row(row) * columns + column) / 2];
    return column % 2 == 0 ? pair & 15 : pair >> 4;
  }
  __device__ uint32_t Scale(int64_t row, int64_t column) const {
    return tensors[Tensor(row)].scales[(Row(row) * columns + column) / 32];
  }
};

__device__ uint32_t ExponentOf(float factor) { return __float_as_uint(factor) >> 23 & 255; }

// One block; factor = 2^(largest scale byte - 127), NaN for 255. A byte of 0 counts as 1: 2^-127
// is no normal FP32 number and no weight.
__global__ void LargestScale(PackSource source, int64_t bytes, float* factor) {
  __shared__ int largest;
  if (threadIdx.x == 0) largest = 1;
  __syncthreads();
  int mine = 1;
  for (int tensor = 0; tensor < source.count; ++tensor) {
    for (int64_t i = threadIdx.x; i < bytes; i += blockDim.x) {
      mine = max(mine, static_cast<int>(source.tensors[tensor].scales[i]));
    }
  }
  atomicMax(&largest, mine);
  __syncthreads();
  if (threadIdx.x != 0) return;
  *factor = __uint_as_float(largest == 255 ? 0x7fc00000u : static_cast<uint32_t>(largest) << 23);
}

// Block x: chunk of 256 rows and 64 columns; 512 threads, 16 bytes of codes each.
__global__ void PackChunk(PackSource source, const float* factor, std::byte* packed) {
  const int64_t steps = source.columns / kChunkColumns;
  const int64_t first_row = blockIdx.x / steps * kChunkRows;
  const int64_t first_column = blockIdx.x % steps * kChunkColumns;
  std::byte* chunk = packed + int64_t{blockIdx.x} * kChunkBytes;
  const int block = threadIdx.x / 128;
  const int thread = threadIdx.x % 128;
  const int64_t row = first_row + block * 64 + thread / 32 * 16 + thread % 32 / 4;
  const int64_t column = first_column + thread % 4 * 2;

  uint32_t words[4];
  for (int j = 0; j < 4; ++j) {
    words[j] = 0;
    for (int reg = 0; reg < 4; ++reg) {
      for (int half = 0; half < 2; ++half) {
        const uint32_t code = source.Code(row + reg % 2 * 8, column + 16 * j + reg / 2 * 8 + half);
        words[j] |= PlaceCode(code, reg) << (16 * half);
      }
    }
  }
  *reinterpret_cast<uint4*>(chunk + ChunkCodes(block, thread)) =
      make_uint4(words[0], words[1], words[2], words[3]);

  if (thread % 4 != 0) return;
  uint32_t scales = 0;
  for (int i = 0; i < 4; ++i) {
    // Relative to the largest scale, and 2^126 for where WidenCodes puts the codes.
    const int field = 253 +
                      static_cast<int>(source.Scale(row + i % 2 * 8, first_column + i / 2 * 32)) -
                      static_cast<int>(ExponentOf(*factor));
    scales |= static_cast<uint32_t>(max(field, 0)) << (8 * i);
  }
  *reinterpret_cast<uint32_t*>(chunk + ChunkScales(block, thread)) = scales;
}

void Pack(const PackSource& source, int64_t rows, float* factor, std::byte* packed,
          CUstream_st* stream) {
  const int64_t tensor_rows = rows / source.count;
  LargestScale<<<1, 1024, 0, stream>>>(source, tensor_rows * source.columns / 32, factor);
  CheckLaunch("LargestScale");
  const int64_t chunks = rows / kChunkRows * (source.columns / kChunkColumns);
  PackChunk<<<static_cast<unsigned>(chunks), 512, 0, stream>>>(source, factor, packed);
  CheckLaunch("PackChunk");
}

}  // namespace

int64_t GateUpBytes(int64_t d, int64_t f) {
  return 2 * f / kChunkRows * (d / kChunkColumns) * kChunkBytes;
}

int64_t DownBytes(int64_t d, int64_t f) {
  return d / kChunkRows * (f / kChunkColumns) * kChunkBytes;
}

void PackExpert(const Fp4Tensor& w1, const Fp4Tensor& w2, const Fp4Tensor& w3, int expert,
                const ExpertBank& bank, CUstream_st* stream) {
  BATON_CHECK(bank.d % 256 == 0 && bank.f % 128 == 0)
      << "experts need a hidden size of a multiple of 256 and a width of a multiple of 128, got "
      << bank.d << " and " << bank.f;
  BATON_CHECK(expert >= 0 && expert < bank.experts) << "expert " << expert;
  Pack({.tensors = {w1, w3}, .count = 2, .columns = bank.d}, 2 * bank.f, bank.factors + 2 * expert,
       bank.gate_up + expert * GateUpBytes(bank.d, bank.f), stream);
  Pack({.tensors = {w2, {}}, .count = 1, .columns = bank.f}, bank.d, bank.factors + 2 * expert + 1,
       bank.down + expert * DownBytes(bank.d, bank.f), stream);
}

}  // namespace baton::kernels::cuda
