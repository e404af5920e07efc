#pragma once

#include <cstddef>

#include "kernels/runtime/event.h"
#include "kernels/runtime/stream.h"

namespace baton::engine::cuda {

// Where work is issued: a stream, and memory that its products use meanwhile.
struct Lane {
  CUstream_st* stream = nullptr;
  std::byte* workspace = nullptr;  // LtMatmul::kWorkspaceBytes
};

// A stream beside the main one. The few rows of a decoding step leave most of the card idle in
// every single op, so chains of ops that do not need each other run side by side. In a captured
// step the streams become branches of the graph.
class SideLane {
 public:
  explicit SideLane(std::byte* workspace) : workspace_(workspace) {}

  // What the lane is given from now on comes after all that `main` has been given so far, ...
  void Follow(CUstream_st* main) {
    mark_.Record(main);
    stream_.Wait(mark_);
  }
  // ... and what `main` is given from now on after all of the lane's.
  void Join(CUstream_st* main) {
    mark_.Record(stream_.get());
    kernels::Wait(main, mark_);
  }
  Lane lane() const { return {stream_.get(), workspace_}; }

 private:
  kernels::Stream stream_;
  kernels::Event mark_;
  std::byte* workspace_;
};

}  // namespace baton::engine::cuda
