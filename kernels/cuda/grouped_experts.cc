#include "kernels/cuda/grouped_experts.h"

#include "common/base/check.h"
#include "kernels/cuda/grouped_product.h"
#include "kernels/cuda/variants.h"

namespace baton::kernels::cuda {

namespace {

using Product = void (*)(const GroupedParams&, CUstream_st*);

void Launch(Product product, const GroupedParams& params, CUstream_st* stream) {
  BATON_CHECK(params.experts <= kMaxExperts) << params.experts << " experts";
  BATON_CHECK(params.x.stride % 16 == 0) << "rows of x are " << params.x.stride << " bytes apart";
  BATON_CHECK(params.x.rows * params.x.stride / 16 < int64_t{1} << 32) << "x exceeds 64 GiB";
  if (params.slots.count > 0) product(params, stream);
}

void GateUp(Product product, const ExpertGateUpParams& params, CUstream_st* stream) {
  const ExpertBank& bank = params.bank;
  BATON_CHECK(params.x.cols == bank.d && params.hidden.cols == bank.f &&
              params.hidden.rows == params.slots.count && params.hidden.stride % 16 == 0)
      << "x " << params.x.cols << ", hidden [" << params.hidden.rows << ", " << params.hidden.cols
      << "], experts " << bank.d << " to " << bank.f;
  Launch(product,
         {.weights = bank.gate_up,
          .expert_bytes = GateUpBytes(bank.d, bank.f),
          .row_scales = bank.row_scales,
          .expert_scales = 2 * bank.f + bank.d,
          .experts = bank.experts,
          .row_blocks = static_cast<int>(2 * bank.f / 256),
          .steps = static_cast<int>(bank.d / 128),
          .slots = params.slots,
          .x = params.x,
          .limit = params.limit,
          .hidden = params.hidden,
          .y = nullptr,
          .y_stride = 0},
         stream);
}

void Down(Product product, const ExpertDownParams& params, CUstream_st* stream) {
  const ExpertBank& bank = params.bank;
  BATON_CHECK(params.hidden.cols == bank.f && params.hidden.rows == params.slots.count &&
              params.y.cols == bank.d && params.y.rows == params.slots.count &&
              params.y.stride % 8 == 0)
      << "hidden [" << params.hidden.rows << ", " << params.hidden.cols << "], y [" << params.y.rows
      << ", " << params.y.cols << "], experts " << bank.f << " to " << bank.d;
  Launch(product,
         {.weights = bank.down,
          .expert_bytes = DownBytes(bank.d, bank.f),
          .row_scales = bank.row_scales + 2 * bank.f,
          .expert_scales = 2 * bank.f + bank.d,
          .experts = bank.experts,
          .row_blocks = static_cast<int>(bank.d / 256),
          .steps = static_cast<int>(bank.f / 128),
          .slots = params.slots,
          .x = params.hidden,
          .limit = 0,
          .hidden = {},
          .y = params.y.data,
          .y_stride = params.y.stride},
         stream);
}

}  // namespace

void ExpertGateUp(const ExpertGateUpParams& params, CUstream_st* stream) {
  GateUp(HasSm90a() ? GroupedProductSm90a<true> : GroupedProductPortable<true>, params, stream);
}
void ExpertGateUpPortable(const ExpertGateUpParams& params, CUstream_st* stream) {
  GateUp(GroupedProductPortable<true>, params, stream);
}

void ExpertDown(const ExpertDownParams& params, CUstream_st* stream) {
  Down(HasSm90a() ? GroupedProductSm90a<false> : GroupedProductPortable<false>, params, stream);
}
void ExpertDownPortable(const ExpertDownParams& params, CUstream_st* stream) {
  Down(GroupedProductPortable<false>, params, stream);
}

}  // namespace baton::kernels::cuda
