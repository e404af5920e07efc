#include "kernels/runtime/graph.h"

#include <utility>

#include <cuda_runtime_api.h>

#include "kernels/runtime/error.h"

namespace baton::kernels {

Graph Graph::Capture(CUstream_st* stream, const std::function<void()>& issue) {
  // Other threads go on using the device meanwhile.
  CheckCuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
            "cudaStreamBeginCapture");
  issue();
  cudaGraph_t graph = nullptr;
  CheckCuda(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
  cudaGraphExec_t executable = nullptr;
  CheckCuda(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
  CheckCuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
  return Graph(executable);
}

Graph::~Graph() {
  if (executable_ != nullptr) CheckCuda(cudaGraphExecDestroy(executable_), "cudaGraphExecDestroy");
}

Graph::Graph(Graph&& other) noexcept : executable_(std::exchange(other.executable_, nullptr)) {}

Graph& Graph::operator=(Graph&& other) noexcept {
  std::swap(executable_, other.executable_);
  return *this;
}

void Graph::Launch(CUstream_st* stream) const {
  CheckCuda(cudaGraphLaunch(executable_, stream), "cudaGraphLaunch");
}

}  // namespace baton::kernels
