#pragma once

#include <vector>

#include "kernels/cuda/index_logits.h"
#include "kernels/cuda/index_query.h"

// The index kernels built with the faults that other implementations of the indexer had. A gate
// that lets one of them pass is no gate.

namespace baton::kernels::cuda {

struct IndexMutant {
  const char* name;
  bool quantised_only;  // the fault is in how scales are found
  void (*query)(const IndexQueryParams&, CUstream_st*);
  void (*logits)(const IndexLogitsParams&, CUstream_st*);
};

std::vector<IndexMutant> ProductionIndex();  // the variants that run here, without a fault
std::vector<IndexMutant> IndexMutants();

}  // namespace baton::kernels::cuda
