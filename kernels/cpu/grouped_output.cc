#include "kernels/grouped_output.h"

#include "common/base/check.h"

namespace baton::kernels {

void GroupedOutput(MatrixView<const BFloat16> o, std::span<const PackedMatrix> wo_a,
                   MatrixView<BFloat16> z, ThreadPool& pool) {
  const int64_t groups = static_cast<int64_t>(wo_a.size());
  BATON_CHECK(groups > 0 && o.cols % groups == 0 && z.cols % groups == 0)
      << "o " << o.cols << ", z " << z.cols << ", groups " << groups;
  const int64_t width = o.cols / groups;
  const int64_t rank = z.cols / groups;
  for (int64_t group = 0; group < groups; ++group) {
    Gemm(o.Columns(group * width, width), wo_a[group], z.Columns(group * rank, rank), pool);
  }
}

}  // namespace baton::kernels
