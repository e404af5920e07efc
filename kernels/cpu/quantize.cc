#include "kernels/quantize.h"

#include "common/base/check.h"
#include "kernels/cpu/isa/isa.h"

namespace baton::kernels {

void QuantizeActivations(MatrixView<const BFloat16> x, MatrixView<BFloat16> y, ThreadPool& pool) {
  BATON_CHECK(x.rows == y.rows && x.cols == y.cols && x.cols % 128 == 0) << "width " << x.cols;
  const IsaKernels& isa = Isa();
  pool.For(x.rows, 64, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      isa.fake_quant_fp8(x.Row(row), y.Row(row), static_cast<int>(x.cols), 128);
    }
  });
}

}  // namespace baton::kernels
