#include "common/base/check.h"
#include "kernels/cuda/gemm_small.h"
#include "kernels/cuda/grouped_product.h"
#include "kernels/cuda/hyper_projection.h"
#include "kernels/cuda/index_logits.h"
#include "kernels/cuda/sparse_attention_plan.h"
#include "kernels/cuda/variants.h"

// In place of the wgmma variants where BATON_CUDA_ARCHITECTURES does not name 90a.

namespace baton::kernels::cuda {

namespace {

[[noreturn]] void Refuse(const char* op) {
  BATON_CHECK(false) << op << " by wgmma is not in this build (BATON_CUDA_ARCHITECTURES)";
  __builtin_unreachable();
}

}  // namespace

bool HasSm90a() { return false; }

void SmallGemmSm90a(const SmallGemmParams&, CUstream_st*) { Refuse("products of few rows"); }
void IndexLogitsSm90a(const IndexLogitsParams&, CUstream_st*) { Refuse("index logits"); }
void LaunchAttentionSm90a(const SparseAttentionParams&, const AttentionPlan&, CUstream_st*) {
  Refuse("attention");
}
template <bool kGated>
void GroupedProductSm90a(const GroupedParams&, CUstream_st*) {
  Refuse("experts");
}
template void GroupedProductSm90a<true>(const GroupedParams&, CUstream_st*);
template void GroupedProductSm90a<false>(const GroupedParams&, CUstream_st*);
template <int kTiles>
void HcProjectSm90a(const HcProjectParams&, CUstream_st*) {
  Refuse("hyper-connections");
}
template void HcProjectSm90a<1>(const HcProjectParams&, CUstream_st*);
template void HcProjectSm90a<3>(const HcProjectParams&, CUstream_st*);

}  // namespace baton::kernels::cuda
