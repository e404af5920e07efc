#pragma once

#include <cstdint>
#include <optional>

#include "common/base/bf16.h"
#include "kernels/cuda/gemm_lt.h"
#include "kernels/cuda/gemm_weights.h"
#include "kernels/matrix.h"

struct CUstream_st;

namespace baton::kernels::cuda {

// kernels/grouped_output.h with wo_a on the device as FP8, as the checkpoint has it. Activations
// are BF16, so products are exact in either path: few rows read the codes directly (SmallGemm),
// more of them have it widened to BF16 in scratch memory first. What gemm.h says about the
// bits of a row holds here too.
class GroupedOutput {
 public:
  // From host memory: codes [groups * R, width], E8M0 scales [groups * R / 128, width / 128]. Null:
  // no device memory left. R and width are multiples of 128.
  static std::optional<GroupedOutput> FromFp8(MatrixView<const uint8_t> codes,
                                              MatrixView<const uint8_t> scales, int groups,
                                              int64_t max_rows);

  // A few groups are widened at a time; few rows use none of it.
  static int64_t ScratchBytes(int64_t rank, int64_t width, int groups);
  int64_t ScratchBytes() const { return ScratchBytes(rank_, width_, groups_); }

  // o [rows, groups * width], z [rows, groups * R], both reaching to LtMatmul::RoundUpRows(rows)
  // rows. scratch: ScratchBytes(); workspace: LtMatmul::kWorkspaceBytes. Nobody else may use either
  // meanwhile.
  void Run(MatrixView<const BFloat16> o, MatrixView<BFloat16> z, std::byte* scratch,
           std::byte* workspace, CUstream_st* stream) const;

 private:
  GroupedOutput(int64_t rank, int64_t width, int groups, int64_t max_rows, DeviceWeights weights);

  int64_t rank_ = 0;
  int64_t width_ = 0;
  int groups_ = 0;
  DeviceWeights weights_;
  LtMatmul matmul_;
};

}  // namespace baton::kernels::cuda
