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

// A code whose unit is 2^shift smaller than the one it is to have: the nearest, ties to even.
__device__ uint32_t Shrink(uint32_t code, int shift) {
  constexpr uint32_t kHalvesOf = 0xc8643210u;  // 0.5 x these are the magnitudes of codes 0 to 7
  const uint32_t halves = kHalvesOf >> (4 * (code & 7)) & 15;
  if (shift == 0) return code;
  if (shift > 5) return code & 8;
  const uint32_t whole = halves >> shift;
  const uint32_t rest = halves & ((1u << shift) - 1);
  const uint32_t tie = 1u << (shift - 1);
  const uint32_t rounded = whole + (rest > tie || (rest == tie && whole % 2 == 1));
  // Halves of 12 and less are 0 to 4 and 6, of which the last is code 5.
  return (code & 8) | (rounded == 6 ? 5 : rounded);
}

// CUDA block x: row x in the order of packing. scales[x] is what its sums are multiplied by: 0.5 of
// the largest scale became 2^5, 6 binary digits more than it is.
__global__ void RowScales(PackSource source, float* scales) {
  __shared__ int largest;
  if (threadIdx.x == 0) largest = 0;
  __syncthreads();
  int mine = 0;
  for (int64_t column = 32 * threadIdx.x; column < source.columns; column += 32 * blockDim.x) {
    mine = max(mine, static_cast<int>(source.Scale(blockIdx.x, column)));
  }
  atomicMax(&largest, mine);
  __syncthreads();
  if (threadIdx.x != 0) return;
  scales[blockIdx.x] =
      largest == 255 ? __uint_as_float(0x7fc00000u) : __uint_as_float(max(largest - 6, 0) << 23);
}

// Of a row; the inverse of the above.
__device__ int LargestScale(float row_scale) {
  return min(255, static_cast<int>(__float_as_uint(row_scale) >> 23 & 255) + 6);
}

// CUDA block x: block of 64 rows and 128 columns, in the order of packing; 128 threads.
__global__ void PackBlock(PackSource source, const float* row_scales, std::byte* packed) {
  const int64_t steps = source.columns / kBlockColumns;
  const int64_t tile = blockIdx.x / (steps * kTileBlocks);
  const int64_t first_column = blockIdx.x / kTileBlocks % steps * kBlockColumns;
  const int64_t first_row = tile * kTileRows + blockIdx.x % kTileBlocks * kBlockRows;
  std::byte* block = packed + int64_t{blockIdx.x} * kBlockBytes;
  const int thread = threadIdx.x;
  const int64_t row = first_row + thread / 32 * 16 + thread % 32 / 4;
  const int64_t column = first_column + thread % 4 * 4;

  uint32_t halves[2] = {0, 0};
  uint32_t words[8] = {};
  for (int next = 0; next < 2; ++next) {
    const int64_t from = row + 8 * next;
    const int largest = LargestScale(row_scales[from]);
    for (int group = 0; group < 4; ++group) {
      const int below = largest - static_cast<int>(source.Scale(from, first_column + 32 * group));
      const int half = kLargestHalf - 8 * below;
      halves[next] |= static_cast<uint32_t>(max(half, kSmallestHalf)) << (8 * group);
      const int shift = max(0, kSmallestHalf - half) / 8;
      for (int i = 0; i < 8; ++i) {
        const uint32_t code = source.Code(from, column + 32 * group + i / 4 * 16 + i % 4);
        words[2 * group + i / 4] |= PlaceCode(Shrink(code, shift), i % 4, next == 1);
      }
    }
  }
  for (int i = 0; i < 2; ++i) {
    *reinterpret_cast<uint4*>(block + BlockCodes(i, thread)) =
        make_uint4(words[4 * i], words[4 * i + 1], words[4 * i + 2], words[4 * i + 3]);
  }
  if (thread % 4 != 0) return;
  *reinterpret_cast<uint2*>(block + BlockHalves(thread)) = make_uint2(halves[0], halves[1]);
}

void Pack(const PackSource& source, int64_t rows, float* row_scales, std::byte* packed,
          CUstream_st* stream) {
  RowScales<<<static_cast<unsigned>(rows), 32, 0, stream>>>(source, row_scales);
  CheckLaunch("RowScales");
  const int64_t blocks = rows / kBlockRows * (source.columns / kBlockColumns);
  PackBlock<<<static_cast<unsigned>(blocks), 128, 0, stream>>>(source, row_scales, packed);
  CheckLaunch("PackBlock");
}

}  // namespace

int64_t GateUpBytes(int64_t d, int64_t f) {
  return 2 * f / kBlockRows * (d / kBlockColumns) * kBlockBytes;
}

int64_t DownBytes(int64_t d, int64_t f) {
  return d / kBlockRows * (f / kBlockColumns) * kBlockBytes;
}

void PackExpert(const Fp4Tensor& w1, const Fp4Tensor& w2, const Fp4Tensor& w3, int expert,
                const ExpertBank& bank, CUstream_st* stream) {
  BATON_CHECK(bank.d % 256 == 0 && bank.f % 128 == 0)
      << "experts need a hidden size of a multiple of 256 and a width of a multiple of 128, got "
      << bank.d << " and " << bank.f;
  BATON_CHECK(expert >= 0 && expert < bank.experts) << "expert " << expert;
  float* scales = bank.row_scales + expert * (2 * bank.f + bank.d);
  Pack({.tensors = {w1, w3}, .count = 2, .columns = bank.d}, 2 * bank.f, scales,
       bank.gate_up + expert * GateUpBytes(bank.d, bank.f), stream);
  Pack({.tensors = {w2, {}}, .count = 1, .columns = bank.f}, bank.d, scales + 2 * bank.f,
       bank.down + expert * DownBytes(bank.d, bank.f), stream);
}

}  // namespace baton::kernels::cuda
