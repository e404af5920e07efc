#pragma once

#include <functional>

struct CUgraphExec_st;  // CUDA's handle of an executable graph points to one
struct CUstream_st;

namespace baton::kernels {

// Owns an executable CUDA graph: work that is issued once and run many times, at a fraction of the
// cost of its launches. Addresses and sizes are those of the capture; what memory holds is read
// when it runs.
class Graph {
 public:
  // What `issue` puts on the stream, instead of running it. It must neither allocate nor wait, and
  // every kernel in it should have run before: CUDA loads code at its first launch.
  static Graph Capture(CUstream_st* stream, const std::function<void()>& issue);
  ~Graph();
  Graph(Graph&& other) noexcept;
  Graph& operator=(Graph&& other) noexcept;

  void Launch(CUstream_st* stream) const;

 private:
  explicit Graph(CUgraphExec_st* executable) : executable_(executable) {}

  CUgraphExec_st* executable_ = nullptr;
};

}  // namespace baton::kernels
