#include "kernels/mtp.h"

#include "common/base/check.h"

namespace baton::kernels {

void AddEmbeddingToStreams(MatrixView<const BFloat16> e, MatrixView<BFloat16> h) {
  BATON_CHECK(e.rows == h.rows && e.cols > 0 && h.cols % e.cols == 0)
      << "e " << e.cols << ", h " << h.cols;
  for (int64_t row = 0; row < h.rows; ++row) {
    for (int64_t i = 0; i < h.cols; ++i) {
      BFloat16& value = h.Row(row)[i];
      value = BFloat16(static_cast<float>(e.Row(row)[i % e.cols]) + static_cast<float>(value));
    }
  }
}

}  // namespace baton::kernels
