#include "common/base/check.h"
#include "kernels/cuda/device/close_launch.cuh"
#include "kernels/cuda/device/numeric.cuh"
#include "kernels/cuda/device/reduce.cuh"
#include "kernels/cuda/moe.h"
#include "kernels/cuda/moe_gate.cuh"
#include "kernels/runtime/error.h"

namespace baton::kernels::cuda {

namespace {

constexpr int kWarps = 8;

// A warp for 128 columns of a row, four neighbours a lane.
__global__ void __launch_bounds__(32 * kWarps) GateAndQuantize(GateSharedExpertParams params) {
  AwaitPredecessors();
  const int64_t row = blockIdx.x;
  const int64_t group = int64_t{blockIdx.y} * kWarps + threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  if (group * 128 >= params.v.cols) return;
  const int64_t col = group * 128 + lane * 4;
  const BFloat16* gate = params.gate_up.Row(row) + col;
  const uint2 a = *reinterpret_cast<const uint2*>(gate);
  const uint2 b = *reinterpret_cast<const uint2*>(gate + params.v.cols);
  const float v[4] = {Gate(LowBf16(a.x), LowBf16(b.x), 1, params.limit),
                      Gate(HighBf16(a.x), HighBf16(b.x), 1, params.limit),
                      Gate(LowBf16(a.y), LowBf16(b.y), 1, params.limit),
                      Gate(HighBf16(a.y), HighBf16(b.y), 1, params.limit)};
  float largest = fmaxf(fmaxf(fabsf(v[0]), fabsf(v[1])), fmaxf(fabsf(v[2]), fabsf(v[3])));
  largest = LaneMax<32>(largest);
  const float scale = Fp8Scale(largest);
  const float inverse = InverseOfPowerOfTwo(scale);
  *reinterpret_cast<uint32_t*>(params.v.codes + row * params.v.stride + col) =
      PackE4m3(v[0] * inverse, v[1] * inverse, v[2] * inverse, v[3] * inverse);
  if (lane == 0) params.v.scales[group * params.v.scale_stride + row] = scale;
}

}  // namespace

void GateSharedExpert(const GateSharedExpertParams& params, CUstream_st* stream) {
  BATON_CHECK(params.gate_up.rows == params.v.rows && params.gate_up.cols == 2 * params.v.cols &&
              params.v.cols % 128 == 0 && params.gate_up.stride % 8 == 0 &&
              params.v.stride % 16 == 0)
      << "gate_up [" << params.gate_up.rows << ", " << params.gate_up.cols << "], v ["
      << params.v.rows << ", " << params.v.cols << "]";
  if (params.v.rows == 0) return;
  const dim3 grid(static_cast<unsigned>(params.v.rows),
                  static_cast<unsigned>((params.v.cols / 128 + kWarps - 1) / kWarps));
  LaunchClosely(GateAndQuantize, {grid, 32 * kWarps}, stream, params);
  CheckLaunch("GateAndQuantize");
}

}  // namespace baton::kernels::cuda
