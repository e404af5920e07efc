#include "kernels/cuda/grouped_output.h"

#include <numeric>
#include <utility>

#include "common/base/check.h"
#include "kernels/cuda/dequantize.h"
#include "kernels/cuda/gemm_small.h"

namespace baton::kernels::cuda {
namespace {

// Groups of one product: of 4 groups of V4's size every multiprocessor has some eight tiles.
int AtOnce(int groups) { return std::gcd(groups, 4); }

}  // namespace

GroupedOutput::GroupedOutput(int64_t rank, int64_t width, int groups, int64_t max_rows,
                             DeviceWeights weights)
    : rank_(rank),
      width_(width),
      groups_(groups),
      weights_(std::move(weights)),
      matmul_({.n = rank, .k = width, .groups = AtOnce(groups), .max_rows = max_rows}) {}

std::optional<GroupedOutput> GroupedOutput::FromFp8(MatrixView<const uint8_t> codes,
                                                    MatrixView<const uint8_t> scales, int groups,
                                                    int64_t max_rows) {
  BATON_CHECK(groups > 0 && codes.rows % (128 * int64_t{groups}) == 0)
      << codes.rows << " rows, " << groups << " groups";
  auto weights = UploadFp8(codes, scales);
  if (!weights) return std::nullopt;
  return GroupedOutput(codes.rows / groups, codes.cols, groups, max_rows, std::move(*weights));
}

int64_t GroupedOutput::ScratchBytes(int64_t rank, int64_t width, int groups) {
  return AtOnce(groups) * rank * width * static_cast<int64_t>(sizeof(BFloat16));
}

void GroupedOutput::Run(MatrixView<const BFloat16> o, MatrixView<BFloat16> z, std::byte* scratch,
                        std::byte* workspace, CUstream_st* stream) const {
  BATON_CHECK(o.cols == groups_ * width_ && z.cols == groups_ * rank_ && o.rows == z.rows &&
              o.stride % 8 == 0 && z.stride % 8 == 0)
      << "o [" << o.rows << ", " << o.cols << "], z [" << z.rows << ", " << z.cols << "], "
      << groups_ << " groups of " << width_ << " to " << rank_;
  const int64_t scale_stride = LtMatmul::ScaleColumns(width_);
  if (PrefersSmallGemm(o.rows, rank_ * groups_)) {
    SmallGemm({.w_format = SmallGemmParams::Format::kFp8,
               .rows = static_cast<int>(o.rows),
               .n = rank_,
               .k = width_,
               .groups = groups_,
               .w = weights_.values.data(),
               .w_scales = weights_.scales.As<float>(),
               .w_scale_stride = scale_stride,
               .x = o.data,
               .x_stride = o.stride,
               .x_group = width_,
               .y = z.data,
               .y_stride = z.stride},
              stream);
    return;
  }
  auto* wide = reinterpret_cast<BFloat16*>(scratch);
  const int64_t at_once = AtOnce(groups_) * rank_;  // rows of weights
  for (int64_t row = 0; row < groups_ * rank_; row += at_once) {
    DequantizeBlocks({.codes = {weights_.values.As<uint8_t>() + row * width_, at_once, width_},
                      .scales = weights_.scales.As<float>() + row / 128 * scale_stride,
                      .scale_stride = scale_stride,
                      .y = {wide, at_once, width_}},
                     stream);
    matmul_.Run({.rows = LtMatmul::RoundUpRows(o.rows),
                 .w = wide,
                 .x = o.data + row / rank_ * width_,
                 .x_stride = o.stride,
                 .x_group = width_,
                 .y = z.data + row,
                 .y_stride = z.stride,
                 .y_group = rank_,
                 .workspace = workspace},
                stream);
  }
}

}  // namespace baton::kernels::cuda
