#pragma once

#include "kernels/cuda/device/close_launch.cuh"
#include "kernels/cuda/sparse_attention_plan.h"

namespace baton::kernels::cuda {

using AttentionKernel = void (*)(SparseAttentionParams, AttentionPlan);

// A variant's kernels by the format of the compressed entries that they read.
struct AttentionKernels {
  AttentionKernel bf16;  // also for layers without entries
  AttentionKernel fp8_packed;
};

inline void Launch(const AttentionKernels& kernels, const LaunchShape& shape,
                   const SparseAttentionParams& params, const AttentionPlan& plan,
                   CUstream_st* stream) {
  const bool packed = params.ratio > 0 && params.pool.format == EntryFormat::kFp8Packed;
  const AttentionKernel kernel = packed ? kernels.fp8_packed : kernels.bf16;
  CheckCuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 static_cast<int>(shape.shared_bytes)),
            "cudaFuncSetAttribute");
  LaunchClosely(kernel, shape, stream, params, plan);
}

}  // namespace baton::kernels::cuda
