#pragma once

#include <cstdint>

#include "common/base/bf16.h"
#include "kernels/numeric.h"

struct CUstream_st;

namespace baton::kernels::cuda {

// IndexQuery and ScaleIndexWeights of kernels/index_select.h in one pass, to the same bits. The
// scale of the head weights needs no other factor: every storage format of the keys is read back as
// BF16, so queries stay BF16 too and have no scale of their own.
struct IndexQueryParams {
  BFloat16* q = nullptr;  // in place [rows, heads * 128], aligned to 16 bytes
  BFloat16* w = nullptr;  // in place [rows, heads]
  int rows = 0;
  int heads = 0;
  const float* rope = nullptr;  // [rows, 64], aligned to 16 bytes
  Numerics numerics = Numerics::kReference;
};
void IndexQuery(const IndexQueryParams& params, CUstream_st* stream);

}  // namespace baton::kernels::cuda
