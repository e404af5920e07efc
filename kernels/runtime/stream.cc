#include "kernels/runtime/stream.h"

#include <utility>

#include <cuda_runtime_api.h>

#include "kernels/runtime/error.h"
#include "kernels/runtime/event.h"

namespace baton::kernels {

Stream::Stream() {
  CheckCuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
}

Stream::~Stream() {
  if (stream_ != nullptr) CheckCuda(cudaStreamDestroy(stream_), "cudaStreamDestroy");
}

Stream::Stream(Stream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}

Stream& Stream::operator=(Stream&& other) noexcept {
  std::swap(stream_, other.stream_);
  return *this;
}

void Stream::Synchronize() const {
  CheckCuda(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
}

void Stream::Wait(const Event& event) { kernels::Wait(stream_, event); }

void Wait(CUstream_st* stream, const Event& event) {
  CheckCuda(cudaStreamWaitEvent(stream, event.get(), 0), "cudaStreamWaitEvent");
}

void CopyAsync(void* target, const void* source, int64_t bytes, CUstream_st* stream) {
  CheckCuda(cudaMemcpyAsync(target, source, bytes, cudaMemcpyDefault, stream), "cudaMemcpyAsync");
}

void CopyRowsAsync(void* target, int64_t target_stride, const void* source, int64_t source_stride,
                   int64_t bytes, int64_t rows, CUstream_st* stream) {
  CheckCuda(cudaMemcpy2DAsync(target, target_stride, source, source_stride, bytes, rows,
                              cudaMemcpyDefault, stream),
            "cudaMemcpy2DAsync");
}

void FillAsync(void* target, uint8_t value, int64_t bytes, CUstream_st* stream) {
  CheckCuda(cudaMemsetAsync(target, value, bytes, stream), "cudaMemsetAsync");
}

}  // namespace baton::kernels
