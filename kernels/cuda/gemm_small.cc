#include "kernels/cuda/gemm_small.h"

#include "common/base/check.h"
#include "kernels/cuda/variants.h"
#include "kernels/runtime/device.h"

namespace baton::kernels::cuda {

namespace {

constexpr int kMaxRowsPortable = 32;

}  // namespace

bool PrefersSmallGemm(int64_t rows, int64_t n) {
  if (rows <= kMaxRowsPortable) return true;
  if (!HasSm90a()) return false;
  // While every multiprocessor has at most one tile: of the widest panels, where one tile has all
  // tokens and weights are read once; of the narrowest, where there are more. Further on there is
  // work for LtMatmul's larger tiles, which read less. A rule: what was measured with it, and
  // against products whose sums are cut, is in tests/bench/results/h200_kernels_gemm_moe.md ("Whole
  // sums"); the border itself was not swept.
  constexpr int64_t kTokens = SmallGemmTile::kTokens;
  const int64_t token_tiles = (rows + kTokens - 1) / kTokens;
  const int64_t panel = token_tiles == 1 ? SmallGemmTile::kWidest : SmallGemmTile::kNarrowest;
  return n / panel * token_tiles <= CurrentDevice().multiprocessors;
}

void SmallGemm(const SmallGemmParams& params, CUstream_st* stream) {
  using Format = SmallGemmParams::Format;
  const bool fp8_weights = params.w_format == Format::kFp8;
  const int64_t chunk = SmallGemmParams::kChunkBytes / (fp8_weights ? 1 : 2);
  BATON_CHECK(params.n * params.groups <= INT32_MAX && params.k <= INT32_MAX);
  BATON_CHECK(params.k % chunk == 0 && (params.groups == 1 || params.n % 128 == 0))
      << params.rows << " rows, n " << params.n << ", k " << params.k << ", " << params.groups
      << " groups";
  BATON_CHECK(fp8_weights || params.x_format != Format::kFp8)
      << "FP8 activations with BF16 weights";
  BATON_CHECK(HasSm90a() || params.rows <= kMaxRowsPortable) << params.rows << " rows";
  if (params.rows == 0) return;
  if (HasSm90a()) return SmallGemmSm90a(params, stream);
  SmallGemmPortable(params, stream);
}

}  // namespace baton::kernels::cuda
