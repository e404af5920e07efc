#pragma once

#include <span>

#include "common/base/bf16.h"
#include "kernels/gemm.h"
#include "kernels/matrix.h"
#include "kernels/parallel.h"

namespace baton::kernels {

// z[:, g * R .. (g + 1) * R) = bf16(o[:, group g] wo_a[g]^T): the heads are cut into
// wo_a.size() groups of consecutive heads, each with its own [R, heads / groups * head_dim] weight.
// o [rows, heads * head_dim] after InverseRope, not quantised; z [rows, groups * R].
void GroupedOutput(MatrixView<const BFloat16> o, std::span<const PackedMatrix> wo_a,
                   MatrixView<BFloat16> z, ThreadPool& pool);

}  // namespace baton::kernels
