#include <sstream>

#include <cuda_runtime_api.h>

#include "kernels/cuda/grouped_experts.h"
#include "kernels/cuda/topk.h"
#include "kernels/cuda/variants.h"
#include "kernels/runtime/device.h"

namespace baton::kernels::cuda {

namespace {

constexpr int kLeastCapability = 90;  // clusters of thread blocks
constexpr int kLeastSharedBytes =
    99 * 1024;  // of a block, on request: what the portable variants need
constexpr int kHeadTile = 64;

__global__ void ProbeKernel() {}

int SharedBytesOfABlock() {
  int device = 0;
  int bytes = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  return bytes;
}

bool HasCodeForDevice() {
  cudaFuncAttributes attributes{};
  const bool found = cudaFuncGetAttributes(&attributes, ProbeKernel) == cudaSuccess;
  cudaGetLastError();
  return found;
}

std::string Capability(int value) {
  return std::to_string(value / 10) + "." + std::to_string(value % 10);
}

}  // namespace

std::string WhatDeviceLacks() {
  const DeviceInfo& device = CurrentDevice();
  if (device.compute_capability < kLeastCapability) {
    return device.name + " has compute capability " + Capability(device.compute_capability) +
           "; the kernels need " + Capability(kLeastCapability) + " or later";
  }
  if (!HasCodeForDevice()) {
    return "this build holds no code for the compute capability " +
           Capability(device.compute_capability) + " of " + device.name +
           ": name it in BATON_CUDA_ARCHITECTURES";
  }
  if (SharedBytesOfABlock() < kLeastSharedBytes) {
    return device.name + " gives a block " + std::to_string(SharedBytesOfABlock() >> 10) +
           " KiB of shared memory; the kernels need " + std::to_string(kLeastSharedBytes >> 10);
  }
  return "";
}

std::string WhatDeterminismLacks(int compute_capability, bool has_sm90a) {
  if (has_sm90a) return "";
  if (compute_capability != 90) {
    return "compute capability 9.0: with " + Capability(compute_capability) +
           " bits of a product differ between up to 32 rows and more";
  }
  return "kernels that this build lacks: name 90a in BATON_CUDA_ARCHITECTURES";
}

std::string WhatKernelsLack(const ModelShape& shape) {
  std::ostringstream lacking;
  const auto need = [&](bool fits, const char* what, int64_t value, const char* limit) {
    if (!fits)
      lacking << (lacking.tellp() > 0 ? ", " : "") << what << " " << value << " (" << limit << ")";
  };
  need(shape.heads <= kHeadTile || shape.heads % kHeadTile == 0, "attention heads", shape.heads,
       "up to 64 or a multiple of it");
  need(shape.index_heads <= kHeadTile, "index heads", shape.index_heads, "up to 64");
  need(shape.index_topk <= kMaxTopK, "index top-k", shape.index_topk, "up to 2,048");
  need(shape.hidden % 256 == 0, "hidden size", shape.hidden, "a multiple of 256");
  need(shape.expert_width % 128 == 0, "expert width", shape.expert_width, "a multiple of 128");
  need(shape.experts <= kMaxExperts, "experts", shape.experts, "up to 512");
  return lacking.str();
}

}  // namespace baton::kernels::cuda
