#include "kernels/cuda/device/async.cuh"
#include "kernels/cuda/device/mma.cuh"
#include "kernels/cuda/device/wgmma.cuh"
#include "kernels/cuda/hyper_projection.cuh"

namespace baton::kernels::cuda {

namespace {

// By wgmma, the parts of fn as columns of their own: streams are then read once. Squares are added
// up meanwhile, a row a thread.
template <int kTiles>
struct HcProjectionSm90a {
  static constexpr int kStages = 4;
  static constexpr int kColumns = HcColumns<kTiles>;
  static constexpr int kBlockTiles = kHcBlockRows / 64;
  using Stage = HcStage<kTiles>;

  __device__ static int RowVector(int row, int vector) { return SwizzledOffset(row, vector) / 16; }
  __device__ static void BeforeBarrier() { FenceForTensorCores(); }

  // Mixes of rows 16 warp + lane / 4 and 8 further on of each 64, as wgmma leaves them; the sum of
  // squares of row threadIdx.x.
  struct Sums {
    float mixes[kBlockTiles][kTiles][4] = {};
    float squares = 0;

    __device__ void Add(const Sums& other) {
#pragma unroll
      for (int m = 0; m < kBlockTiles; ++m) {
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
          for (int k = 0; k < 4; ++k) mixes[m][tile][k] += other.mixes[m][tile][k];
        }
      }
      squares += other.squares;
    }
  };

  __device__ static void Accumulate(const Stage& stage, Sums& sums) {
    float products[kBlockTiles][kFnParts * kTiles * 4];
    const uint64_t rows = ChannelsSummed(UniformSharedAddress(stage.rows));
    const uint64_t fn = ChannelsSummed(UniformSharedAddress(stage.fn));
    WgmmaFence();
#pragma unroll
    for (int k = 0; k < kHcStep / 16; ++k) {
#pragma unroll
      for (int m = 0; m < kBlockTiles; ++m) {
        Wgmma<false>(products[m], Advanced(rows, m * 64 * 128 + k * 32), Advanced(fn, k * 32),
                     k > 0);
      }
    }
    WgmmaCommit();
    Sums step;
#pragma unroll
    for (int vector = 0; vector < kHcRowVectors; ++vector) {
      const Vector16 value = stage.rows[RowVector(static_cast<int>(threadIdx.x), vector)];
      const uint32_t words[4] = {value.x, value.y, value.z, value.w};
#pragma unroll
      for (const uint32_t pair : words) {
        step.squares = __fmaf_rn(LowBf16(pair), LowBf16(pair), step.squares);
        step.squares = __fmaf_rn(HighBf16(pair), HighBf16(pair), step.squares);
      }
    }
    WgmmaWait<0>();
#pragma unroll
    for (int m = 0; m < kBlockTiles; ++m) {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          float& mix = step.mixes[m][tile][k];
#pragma unroll
          for (int part = kFnParts - 1; part >= 0; --part) {  // small terms first
            mix += products[m][(part * kTiles + tile) * 4 + k];
          }
        }
      }
    }
    sums.Add(step);
  }

  // partial [segments or groups, rows, kColumns].
  __device__ static void Store(const Sums& sums, int64_t first_row, int64_t rows, int part,
                               float* partial) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    float* out = partial + (part * rows + first_row) * kColumns;
#pragma unroll
    for (int i = 0; i < 2 * kBlockTiles; ++i) {
      const int row = i / 2 * 64 + static_cast<int>(threadIdx.x) / 32 * 16 + lane / 4 + i % 2 * 8;
      if (first_row + row >= rows) continue;
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        const float* mixes = sums.mixes[i / 2][tile] + i % 2 * 2;
        out[row * kColumns + 8 * tile + lane % 4 * 2] = mixes[0];
        out[row * kColumns + 8 * tile + lane % 4 * 2 + 1] = mixes[1];
      }
    }
    if (first_row + threadIdx.x < rows) out[threadIdx.x * kColumns + 8 * kTiles] = sums.squares;
  }
};

}  // namespace

template <int kTiles>
void HcProjectSm90a(const HcProjectParams& params, CUstream_st* stream) {
  LaunchHcProject<HcProjectionSm90a<kTiles>>(params, stream);
}
template void HcProjectSm90a<1>(const HcProjectParams& params, CUstream_st* stream);
template void HcProjectSm90a<3>(const HcProjectParams& params, CUstream_st* stream);

}  // namespace baton::kernels::cuda
