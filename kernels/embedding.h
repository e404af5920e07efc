#pragma once

#include <cstdint>
#include <span>

#include "common/base/bf16.h"
#include "kernels/matrix.h"

namespace baton::kernels {

// Row i of y = `copies` copies of table[tokens[i]], back to back. table [vocabulary, D],
// y [tokens.size(), copies * D]. Tokens must lie in the table.
void Embed(MatrixView<const BFloat16> table, std::span<const int32_t> tokens, int copies,
           MatrixView<BFloat16> y);

}  // namespace baton::kernels
