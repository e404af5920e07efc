#include "kernels/cuda/device/mma.cuh"
#include "kernels/cuda/hyper_projection.cuh"

namespace baton::kernels::cuda {

namespace {

// By mma.sync.
template <int kTiles>
struct HcProjectionPortable {
  static constexpr int kStages = 3;  // what the smallest cards have room for
  static constexpr int kColumns = HcColumns<kTiles>;
  using Stage = HcStage<kTiles>;

  // Where 16 bytes of a row lie: rows with an odd number swap halves, or the eight lanes that a
  // load serves at once would hit the same banks twice.
  __device__ static int RowVector(int row, int vector) {
    return row * kHcRowVectors + (vector ^ (row % 2 * 4));
  }

  __device__ static void BeforeBarrier() {}

  // What a lane of a warp with 32 rows holds: two tiles of 16 rows by 8 kTiles mixes as mma leaves
  // them, and in lane 4 r + r / 2 of each eight the sum of squares of rows r + 8 i.
  struct Sums {
    float mixes[2][kTiles][4] = {};
    float squares[4] = {};

    __device__ void Add(const Sums& other) {
#pragma unroll
      for (int m = 0; m < 2; ++m) {
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
          for (int k = 0; k < 4; ++k) mixes[m][tile][k] += other.mixes[m][tile][k];
        }
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) squares[i] += other.squares[i];
    }
  };

  __device__ static void Multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    Mma16x8x16(d, a, b0, b1);
  }

  // A lane's eight channels of a row serve two products of 16 channels: the order of channels in a
  // sum is free, and fn is packed in the same one.
  __device__ static void Accumulate(const Stage& stage, Sums& sums) {
    const int lane = threadIdx.x % 32;
    const int first_row = static_cast<int>(threadIdx.x) / 32 * 32 + lane / 4;
    Sums step;
    float rows[4][4] = {};
#pragma unroll
    for (int half = 0; half < kHcStep / 32; ++half) {
      Vector16 a[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        a[i] = stage.rows[RowVector(first_row + 8 * i, half * 4 + lane % 4)];
      }
      // Rows times themselves; a fragment of eight rows is also the fragment of their transpose.
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const Vector16& top = a[i / 2 * 2];
        const Vector16& bottom = a[i / 2 * 2 + 1];
        Multiply(rows[i], {top.x, bottom.x, top.y, bottom.y}, a[i].x, a[i].y);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const Vector16& top = a[i / 2 * 2];
        const Vector16& bottom = a[i / 2 * 2 + 1];
        Multiply(rows[i], {top.z, bottom.z, top.w, bottom.w}, a[i].z, a[i].w);
      }
#pragma unroll
      for (int part = kFnParts - 1; part >= 0; --part) {  // small terms first
        Vector16 b[kTiles];
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
          b[tile] = stage.fn[((half * kTiles + tile) * kFnParts + part) * 32 + lane];
        }
        // Products that follow each other go to different sums: none waits for its predecessor.
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
          for (int m = 0; m < 2; ++m) {
            Multiply(step.mixes[m][tile], {a[2 * m].x, a[2 * m + 1].x, a[2 * m].y, a[2 * m + 1].y},
                     b[tile].x, b[tile].y);
          }
        }
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
          for (int m = 0; m < 2; ++m) {
            Multiply(step.mixes[m][tile], {a[2 * m].z, a[2 * m + 1].z, a[2 * m].w, a[2 * m + 1].w},
                     b[tile].z, b[tile].w);
          }
        }
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      step.squares[i] = lane / 4 % 2 == 0 ? rows[i][i % 2 * 2] : rows[i][i % 2 * 2 + 1];
    }
    sums.Add(step);
  }

  // partial [segments or groups, rows, kColumns].
  __device__ static void Store(const Sums& sums, int64_t first_row, int64_t rows, int part,
                               float* partial) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int64_t row = first_row + threadIdx.x / 32 * 32 + lane / 4 + 8 * i;
      if (row >= rows) continue;
      float* out = partial + (part * rows + row) * kColumns;
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        const float* d = sums.mixes[i / 2][tile] + i % 2 * 2;
        out[8 * tile + lane % 4 * 2] = d[0];
        out[8 * tile + lane % 4 * 2 + 1] = d[1];
      }
      if (lane % 4 == lane / 8) out[8 * kTiles] = sums.squares[i];
    }
  }
};

}  // namespace

template <int kTiles>
void HcProjectPortable(const HcProjectParams& params, CUstream_st* stream) {
  LaunchHcProject<HcProjectionPortable<kTiles>>(params, stream);
}
template void HcProjectPortable<1>(const HcProjectParams& params, CUstream_st* stream);
template void HcProjectPortable<3>(const HcProjectParams& params, CUstream_st* stream);

}  // namespace baton::kernels::cuda
