#include "kernels/embedding.h"

#include <algorithm>

#include "common/base/check.h"

namespace baton::kernels {

void Embed(MatrixView<const BFloat16> table, std::span<const int32_t> tokens, int copies,
           MatrixView<BFloat16> y) {
  BATON_CHECK(y.rows == static_cast<int64_t>(tokens.size()) && y.cols == table.cols * copies);
  for (int64_t row = 0; row < y.rows; ++row) {
    BATON_CHECK(tokens[row] >= 0 && tokens[row] < table.rows) << "token " << tokens[row];
    for (int copy = 0; copy < copies; ++copy) {
      std::copy_n(table.Row(tokens[row]), table.cols, y.Row(row) + copy * table.cols);
    }
  }
}

}  // namespace baton::kernels
