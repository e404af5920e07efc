#include "kvtransfer/cuda_ipc/cuda_ipc.h"

#include <deque>
#include <string>
#include <utility>

#include "kernels/runtime/device.h"
#include "kernels/runtime/event.h"
#include "kernels/runtime/stream.h"
#include "kvtransfer/cuda_ipc/shared_memory.h"
#include "kvtransfer/device_lane/copy_link.h"
#include "kvtransfer/device_lane/device_mover.h"

namespace baton::kvtransfer {
namespace {

class StreamCopies final : public CopyEngine {
 public:
  // Keeps the peer's memory mapped until the last copy has ended.
  explicit StreamCopies(std::shared_ptr<std::byte> peer) : peer_(std::move(peer)) {}
  ~StreamCopies() override { stream_.Synchronize(); }

  void Start(std::byte* to, const std::byte* from, size_t bytes) override {
    kernels::CopyAsync(to, from, static_cast<int64_t>(bytes), stream_.get());
    running_.emplace_back().Record(stream_.get());
  }
  uint64_t Finished() override {
    for (; !running_.empty() && running_.front().Done(); ++finished_) running_.pop_front();
    return finished_;
  }

 private:
  const std::shared_ptr<std::byte> peer_;
  kernels::Stream stream_;
  std::deque<kernels::Event> running_;  // the end of each copy
  uint64_t finished_ = 0;
};

class CudaIpcFabric final : public Fabric {
 public:
  const std::string& name() const override { return name_; }
  std::chrono::nanoseconds patience() const override { return std::chrono::seconds(1); }

  absl::StatusOr<StagingMemory> Allocate(size_t bytes) override {
    return cuda_ipc::AllocateShared(bytes);
  }
  std::unique_ptr<RecordMover> NewMover() override { return MakeDeviceMover(); }

  DeviceLinkFactory SenderEnd(const StagingMemory& own) override {
    return [bytes = std::span<const std::byte>(own.bytes)](uint64_t, LinkSay say) {
      return MakeCopySender(bytes, std::move(say));
    };
  }
  absl::StatusOr<DeviceLinkFactory> ReceiverEnd(const Fd& memory, uint64_t bytes) override {
    absl::StatusOr<std::shared_ptr<std::byte>> mapped = cuda_ipc::MapShared(memory, bytes);
    if (!mapped.ok()) return mapped.status();
    return [peer = *std::move(mapped), bytes](uint64_t, LinkSay say) {
      return MakeCopyReceiver({peer.get(), bytes}, std::make_unique<StreamCopies>(peer),
                              std::move(say));
    };
  }

 private:
  const std::string name_ = "cuda_ipc";
};

}  // namespace

absl::StatusOr<std::unique_ptr<Fabric>> MakeCudaIpcFabric() {
  if (kernels::DeviceCount() == 0) {
    return absl::UnavailableError("transport cuda_ipc: no NVIDIA driver or card is found");
  }
  return std::make_unique<CudaIpcFabric>();
}

}  // namespace baton::kvtransfer
