#include "common/base/check.h"
#include "kernels/cuda/device/numeric.cuh"
#include "kernels/cuda/device/vector.cuh"
#include "kernels/cuda/mtp.h"
#include "kernels/runtime/error.h"

namespace baton::kernels::cuda {

namespace {

constexpr int kThreads = 128;

__device__ uint32_t AddPairs(uint32_t a, uint32_t b) {
  return PackBf16(LowBf16(a) + LowBf16(b), HighBf16(a) + HighBf16(b));
}

__global__ void __launch_bounds__(kThreads)
    AddToStreams(MatrixView<const BFloat16> e, MatrixView<BFloat16> h) {
  const int64_t row = blockIdx.x;
  const int64_t col = (int64_t{blockIdx.y} * kThreads + threadIdx.x) * 8;
  if (col >= h.cols) return;
  const Vector16 a = Load16(e.Row(row) + col % e.cols);
  BFloat16* target = h.Row(row) + col;
  const Vector16 b = Load16(target);
  Store16(target, make_uint4(AddPairs(a.x, b.x), AddPairs(a.y, b.y), AddPairs(a.z, b.z),
                             AddPairs(a.w, b.w)));
}

__global__ void __launch_bounds__(kThreads) CountAccepted(AcceptDraftsParams params) {
  const int sequence = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (sequence >= params.batch.sequences) return;
  const int begin = params.batch.row_begin[sequence];
  const int end = params.batch.row_begin[sequence + 1];
  int row = begin;
  while (row + 1 < end && params.tokens[row + 1] == params.sampled[row]) ++row;
  params.accepted[sequence] = row - begin;
  params.last[sequence] = begin < end ? params.sampled[row] : -1;
}

}  // namespace

void AddEmbeddingToStreams(MatrixView<const BFloat16> e, MatrixView<BFloat16> h,
                           CUstream_st* stream) {
  BATON_CHECK(e.rows == h.rows && e.cols > 0 && e.cols % 8 == 0 && h.cols % e.cols == 0 &&
              e.stride % 8 == 0 && h.stride % 8 == 0)
      << "e " << e.cols << ", h " << h.cols;
  if (h.rows == 0) return;
  constexpr int kColumns = 8 * kThreads;
  const dim3 grid(static_cast<unsigned>(h.rows),
                  static_cast<unsigned>((h.cols + kColumns - 1) / kColumns));
  AddToStreams<<<grid, kThreads, 0, stream>>>(e, h);
  CheckLaunch("AddToStreams");
}

void AcceptDrafts(const AcceptDraftsParams& params, CUstream_st* stream) {
  if (params.batch.sequences == 0) return;
  CountAccepted<<<(params.batch.sequences + kThreads - 1) / kThreads, kThreads, 0, stream>>>(
      params);
  CheckLaunch("CountAccepted");
}

}  // namespace baton::kernels::cuda
