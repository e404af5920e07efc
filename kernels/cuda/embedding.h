#pragma once

#include <cstdint>

#include "common/base/bf16.h"
#include "kernels/matrix.h"

struct CUstream_st;

namespace baton::kernels::cuda {

// kernels/embedding.h; a row whose token is not in the table (a padded row) is zeros. D a multiple
// of 8, rows aligned to 16 bytes.
void Embed(MatrixView<const BFloat16> table, const int32_t* tokens, int copies,
           MatrixView<BFloat16> y, CUstream_st* stream);

}  // namespace baton::kernels::cuda
