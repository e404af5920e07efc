#pragma once

#include <functional>
#include <string>
#include <vector>

namespace baton::kernels::cuda {

// One execution of a kernel, in microseconds from the first of the trace.
struct KernelSpan {
  std::string name;  // without namespaces, template arguments and parameters
  double begin = 0;
  double end = 0;
};

// The kernels that `work` ran, in order of their start, those of graphs included, as CUPTI reports
// them. `work` returns when the device has finished. Tracing slows launches down: what it times is
// the kernels, not the gaps between them.
std::vector<KernelSpan> TraceKernels(const std::function<void()>& work);

}  // namespace baton::kernels::cuda
