#include "kernels/runtime/error.h"

#include <cuda_runtime_api.h>

#include "common/base/check.h"

namespace baton::kernels {

void CheckCuda(int error, const char* call, std::source_location where) {
  if (error == cudaSuccess) return;
  const auto code = static_cast<cudaError_t>(error);
  BATON_CHECK(false) << call << ": " << cudaGetErrorName(code) << " (" << cudaGetErrorString(code)
                     << ") at " << where.file_name() << ":" << where.line();
}

void CheckLaunch(const char* kernel, std::source_location where) {
  CheckCuda(cudaGetLastError(), kernel, where);
}

}  // namespace baton::kernels
