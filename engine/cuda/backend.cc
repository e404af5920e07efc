#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "engine/cuda/cuda_model.h"
#include "engine/cuda/device_records.h"
#include "engine/cuda/transfer_lane.h"
#include "engine/model/device_backend.h"
#include "kernels/cuda/variants.h"
#include "kernels/runtime/device.h"
#include "kernels/runtime/stream.h"

namespace baton::engine {
namespace {

using kernels::DeviceBuffer;

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(kernels::PinnedBuffer staging) : lane_(std::move(staging)) {}

  absl::StatusOr<std::unique_ptr<Model>> LoadModel(const Checkpoint& checkpoint,
                                                   const ForwardOptions& options) override {
    const ModelConfig& config = checkpoint.config();
    const std::string lacking =
        kernels::cuda::WhatKernelsLack({.heads = config.num_attention_heads,
                                        .index_heads = config.index_n_heads,
                                        .index_topk = options.TopkFor(config),
                                        .hidden = config.hidden_size,
                                        .expert_width = config.moe_intermediate_size,
                                        .experts = config.n_routed_experts});
    if (!lacking.empty()) {
      return absl::FailedPreconditionError(absl::StrCat("no CUDA kernels for ", lacking));
    }
    const std::string needed = kernels::cuda::WhatDeterminismLacks(
        kernels::CurrentDevice().compute_capability, kernels::cuda::HasSm90a());
    if (options.deterministic && !needed.empty()) {
      return absl::FailedPreconditionError(absl::StrCat("deterministic inference needs ", needed));
    }
    return cuda::CudaModel::Load(checkpoint, options);
  }

  std::optional<int64_t> CacheRoom(double fraction) const override {
    const kernels::DeviceMemoryUse memory = kernels::MemoryOfCurrentDevice();
    const auto share = static_cast<int64_t>(fraction * static_cast<double>(memory.total));
    return std::min(memory.free, share - (free_at_start_ - memory.free));
  }

  absl::StatusOr<std::unique_ptr<CacheStorage>> NewCache(const CacheGeometry& geometry) override {
    BATON_ASSIGN_OR_RETURN(
        CacheStorage::Memory pages,
        Zeroed(geometry.options.pages * geometry.page_bytes(), "pages of the cache"));
    BATON_ASSIGN_OR_RETURN(CacheStorage::Memory slots,
                           Zeroed(geometry.options.slots * geometry.slot_bytes(), "state slots"));
    return std::make_unique<CacheStorage>(geometry, std::move(pages), std::move(slots));
  }

  std::unique_ptr<SequenceRecords> NewRecords(const CacheStorage& storage, const PageList& pages,
                                              int slot) override {
    return std::make_unique<cuda::DeviceRecords>(storage, pages, slot, lane_);
  }

 private:
  static absl::StatusOr<CacheStorage::Memory> Zeroed(int64_t bytes, const char* what) {
    std::optional<DeviceBuffer> buffer = DeviceBuffer::Allocate(bytes);
    if (!buffer) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "no room for ", bytes >> 20, " MiB of ", what, " beside the weights in the ",
          kernels::CurrentDevice().memory_bytes >> 20, " MiB of ", kernels::CurrentDevice().name));
    }
    kernels::Stream stream;
    if (bytes > 0) kernels::FillAsync(buffer->data(), 0, bytes, stream.get());
    stream.Synchronize();
    auto owner = std::make_shared<DeviceBuffer>(*std::move(buffer));
    return CacheStorage::Memory(owner, owner->data());
  }

  cuda::TransferLane lane_;
  const int64_t free_at_start_ = kernels::MemoryOfCurrentDevice().free;
};

}  // namespace

bool HasDeviceBackend() { return true; }

absl::StatusOr<std::unique_ptr<Backend>> MakeDeviceBackend() {
  if (kernels::DeviceCount() == 0) {
    return absl::FailedPreconditionError(
        "device is \"cuda\", but no NVIDIA driver or card is found");
  }
  if (const std::string lacking = kernels::cuda::WhatDeviceLacks(); !lacking.empty()) {
    return absl::FailedPreconditionError(lacking);
  }
  auto staging = kernels::PinnedBuffer::Allocate(cuda::TransferLane::kStagingBytes);
  if (!staging) return absl::ResourceExhaustedError("no page-locked memory for transfers");
  return std::make_unique<CudaBackend>(*std::move(staging));
}

}  // namespace baton::engine
