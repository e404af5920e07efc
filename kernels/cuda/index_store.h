#pragma once

#include "kernels/cuda/entry_store.h"

namespace baton::kernels::cuda {

// StoreEntries of 1 to 2^30 - 1 index keys in FP4, of which a warp takes sixteen at a time:
// instructions, not bytes, are what they take longest for.
void StoreFp4Keys(const StoreEntriesParams& params, CUstream_st* stream);

}  // namespace baton::kernels::cuda
