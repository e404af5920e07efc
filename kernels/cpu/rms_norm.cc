#include "kernels/rms_norm.h"

#include <cmath>

#include "common/base/check.h"
#include "kernels/cpu/isa/isa.h"

namespace baton::kernels {

void RmsNorm(const RmsNormParams& params, ThreadPool& pool) {
  const MatrixView<const BFloat16> x = params.x;
  const int n = static_cast<int>(x.cols);
  BATON_CHECK(n % 16 == 0 && static_cast<int64_t>(params.weight.size()) == n) << "width " << n;
  BATON_CHECK(!params.y || (params.y.rows == x.rows && params.y.cols == n));
  BATON_CHECK(!params.y_quantized ||
              (params.y_quantized.rows == x.rows && params.y_quantized.cols == n && n % 128 == 0));
  const IsaKernels& isa = Isa();
  pool.For(x.rows, 64, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float factor = 1.0f / std::sqrt(isa.mean_square(x.Row(row), n) + params.eps);
      BFloat16* plain = params.y ? params.y.Row(row) : params.y_quantized.Row(row);
      isa.scale_row(x.Row(row), params.weight.data(), factor, n, plain);
      if (params.y_quantized) isa.fake_quant_fp8(plain, params.y_quantized.Row(row), n, 128);
    }
  });
}

}  // namespace baton::kernels
