#include "kernels/runtime/event.h"

#include <utility>

#include <cuda_runtime_api.h>

#include "kernels/runtime/error.h"

namespace baton::kernels {

Event::Event(Timing timing) {
  const unsigned flags = timing == Timing::kOn ? cudaEventDefault : cudaEventDisableTiming;
  CheckCuda(cudaEventCreateWithFlags(&event_, flags), "cudaEventCreate");
}

Event::~Event() {
  if (event_ != nullptr) CheckCuda(cudaEventDestroy(event_), "cudaEventDestroy");
}

Event::Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}

Event& Event::operator=(Event&& other) noexcept {
  std::swap(event_, other.event_);
  return *this;
}

void Event::Record(CUstream_st* stream) {
  CheckCuda(cudaEventRecord(event_, stream), "cudaEventRecord");
}

bool Event::Done() const {
  const cudaError_t state = cudaEventQuery(event_);
  if (state == cudaErrorNotReady) return false;
  CheckCuda(state, "cudaEventQuery");
  return true;
}

void Event::Synchronize() const { CheckCuda(cudaEventSynchronize(event_), "cudaEventSynchronize"); }

float Event::MillisecondsSince(const Event& earlier) const {
  float milliseconds = 0;
  CheckCuda(cudaEventElapsedTime(&milliseconds, earlier.event_, event_), "cudaEventElapsedTime");
  return milliseconds;
}

}  // namespace baton::kernels
