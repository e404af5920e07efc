#include "common/base/check.h"
#include "kernels/cuda/device/numeric.cuh"
#include "kernels/cuda/device/vector.cuh"
#include "kernels/cuda/expert_ranks.h"
#include "kernels/runtime/error.h"

namespace baton::kernels::cuda {

namespace {

constexpr int kThreads = 128;
constexpr int kScaleGroup = 128;

// Where the parts of a dispatched row begin.
struct RowLayout {
  int64_t d;
  int64_t k;

  __host__ __device__ int64_t scales() const { return d; }
  __host__ __device__ int64_t experts() const { return d + d / kScaleGroup * 4; }
  __host__ __device__ int64_t weights() const { return experts() + 4 * k; }
  __host__ __device__ int64_t bytes() const { return (weights() + 4 * k + 15) / 16 * 16; }
};

// A block a row.
__global__ void __launch_bounds__(kThreads) Pack(PackRowsParams params, RowLayout layout) {
  const int64_t row = blockIdx.x;
  std::byte* out = params.out + row * layout.bytes();
  const uint8_t* codes = params.x.codes + row * params.x.stride;
  for (int64_t i = int64_t{threadIdx.x} * 16; i < layout.d; i += kThreads * 16) {
    Store16(out + i, Load16(codes + i));
  }
  auto* scales = reinterpret_cast<float*>(out + layout.scales());
  for (int64_t i = threadIdx.x; i < layout.d / kScaleGroup; i += kThreads) {
    scales[i] = params.x.scales[i * params.x.scale_stride + row];
  }
  if (threadIdx.x < layout.k) {
    const int64_t entry = row * layout.k + threadIdx.x;
    reinterpret_cast<int32_t*>(out + layout.experts())[threadIdx.x] = params.experts.data[entry];
    reinterpret_cast<float*>(out + layout.weights())[threadIdx.x] = params.weights[entry];
  }
}

__global__ void __launch_bounds__(kThreads) Unpack(UnpackRowsParams params, RowLayout layout) {
  const int64_t row = blockIdx.x;
  const std::byte* in = params.rows + row * layout.bytes();
  uint8_t* codes = params.x.codes + row * params.x.stride;
  for (int64_t i = int64_t{threadIdx.x} * 16; i < layout.d; i += kThreads * 16) {
    Store16(codes + i, Load16(in + i));
  }
  const auto* scales = reinterpret_cast<const float*>(in + layout.scales());
  for (int64_t i = threadIdx.x; i < layout.d / kScaleGroup; i += kThreads) {
    params.x.scales[i * params.x.scale_stride + row] = scales[i];
  }
  if (threadIdx.x < layout.k) {
    const int64_t entry = row * layout.k + threadIdx.x;
    params.experts.data[entry] =
        reinterpret_cast<const int32_t*>(in + layout.experts())[threadIdx.x];
    params.weights[entry] = reinterpret_cast<const float*>(in + layout.weights())[threadIdx.x];
  }
}

// Eight columns a thread.
__device__ void AddFloats(const float* from, float (&sum)[8]) {
  const Vector16 halves[2] = {LoadStreaming16(from), LoadStreaming16(from + 4)};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    sum[4 * i] += __uint_as_float(halves[i].x);
    sum[4 * i + 1] += __uint_as_float(halves[i].y);
    sum[4 * i + 2] += __uint_as_float(halves[i].z);
    sum[4 * i + 3] += __uint_as_float(halves[i].w);
  }
}

__global__ void __launch_bounds__(kThreads) SumSlotsKernel(SumSlotsParams params) {
  const int64_t row = blockIdx.x;
  const int64_t col = (int64_t{blockIdx.y} * kThreads + threadIdx.x) * 8;
  if (col >= params.sum.cols) return;
  float sum[8] = {};
  for (int i = 0; i < params.slot.cols; ++i) {
    const int slot = params.slot.Row(row)[i];
    if (slot >= 0) AddBf16(LoadStreaming16(params.y.Row(slot) + col), sum);
  }
  auto* out = reinterpret_cast<float4*>(params.sum.Row(row) + col);
  out[0] = make_float4(sum[0], sum[1], sum[2], sum[3]);
  out[1] = make_float4(sum[4], sum[5], sum[6], sum[7]);
}

__global__ void __launch_bounds__(kThreads) AddRanksKernel(AddRanksParams params) {
  const int64_t row = blockIdx.x;
  const int64_t col = (int64_t{blockIdx.y} * kThreads + threadIdx.x) * 8;
  if (col >= params.out.cols) return;
  float sum[8] = {};
  for (int rank = 0; rank < params.ranks; ++rank) {
    AddFloats(params.sums.data()[rank] + row * params.out.cols + col, sum);
  }
  AddBf16(Load16(params.shared.Row(row) + col), sum);
  Store16(params.out.Row(row) + col,
          make_uint4(PackBf16(sum[0], sum[1]), PackBf16(sum[2], sum[3]), PackBf16(sum[4], sum[5]),
                     PackBf16(sum[6], sum[7])));
}

RowLayout LayoutOf(int64_t d, int64_t k) {
  BATON_CHECK(d % kScaleGroup == 0 && k > 0 && k <= 32) << "rows of " << d << ", " << k << " ids";
  return {d, k};
}

// A block for each row and 1,024 columns.
dim3 GridOf(int64_t rows, int64_t cols) {
  constexpr int kColumns = 8 * kThreads;
  return {static_cast<unsigned>(rows), static_cast<unsigned>((cols + kColumns - 1) / kColumns)};
}

}  // namespace

int64_t DispatchedRowBytes(int64_t d, int64_t k) { return LayoutOf(d, k).bytes(); }

void PackRows(const PackRowsParams& params, CUstream_st* stream) {
  BATON_CHECK(params.experts.rows == params.x.rows &&
              params.experts.stride == params.experts.cols && params.x.stride % 16 == 0)
      << params.x.rows << " rows";
  const RowLayout layout = LayoutOf(params.x.cols, params.experts.cols);
  if (params.x.rows == 0) return;
  Pack<<<static_cast<unsigned>(params.x.rows), kThreads, 0, stream>>>(params, layout);
  CheckLaunch("PackRows");
}

void UnpackRows(const UnpackRowsParams& params, CUstream_st* stream) {
  BATON_CHECK(params.experts.rows == params.x.rows &&
              params.experts.stride == params.experts.cols && params.x.stride % 16 == 0)
      << params.x.rows << " rows";
  const RowLayout layout = LayoutOf(params.x.cols, params.experts.cols);
  if (params.x.rows == 0) return;
  Unpack<<<static_cast<unsigned>(params.x.rows), kThreads, 0, stream>>>(params, layout);
  CheckLaunch("UnpackRows");
}

void SumSlots(const SumSlotsParams& params, CUstream_st* stream) {
  const int64_t rows = params.sum.rows;
  const int64_t cols = params.sum.cols;
  BATON_CHECK(params.slot.rows == rows && params.y.cols == cols && cols % 8 == 0 &&
              params.y.stride % 8 == 0 && params.sum.stride % 4 == 0)
      << "sum [" << rows << ", " << cols << "], y of " << params.y.cols;
  if (rows == 0) return;
  SumSlotsKernel<<<GridOf(rows, cols), kThreads, 0, stream>>>(params);
  CheckLaunch("SumSlots");
}

void AddRanks(const AddRanksParams& params, CUstream_st* stream) {
  const int64_t rows = params.out.rows;
  const int64_t cols = params.out.cols;
  BATON_CHECK(params.ranks > 0 && params.ranks <= kMaxRanks && params.shared.rows == rows &&
              params.shared.cols == cols && cols % 8 == 0 && params.shared.stride % 8 == 0 &&
              params.out.stride % 8 == 0)
      << params.ranks << " ranks, out [" << rows << ", " << cols << "]";
  if (rows == 0) return;
  AddRanksKernel<<<GridOf(rows, cols), kThreads, 0, stream>>>(params);
  CheckLaunch("AddRanks");
}

}  // namespace baton::kernels::cuda
