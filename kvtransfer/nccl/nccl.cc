#include "kvtransfer/nccl/nccl.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/runtime/buffer.h"
#include "kernels/runtime/device.h"
#include "kvtransfer/device_lane/device_mover.h"
#include "kvtransfer/device_lane/paired_link.h"
#include "kvtransfer/nccl/communicators.h"

namespace baton::kvtransfer {
namespace {

class NcclFabric final : public Fabric {
 public:
  explicit NcclFabric(std::unique_ptr<CommunicatorMaker> maker) : maker_(std::move(maker)) {}

  const std::string& name() const override { return name_; }
  // The first group of a communicator waits for both ends to join and to connect.
  std::chrono::nanoseconds patience() const override { return std::chrono::seconds(3); }

  absl::StatusOr<StagingMemory> Allocate(size_t bytes) override {
    auto buffer = kernels::DeviceBuffer::Allocate(static_cast<int64_t>(bytes));
    if (!buffer) {
      return absl::ResourceExhaustedError(absl::StrCat("transport nccl: no room for ", bytes >> 20,
                                                       " MiB of staging memory on the device"));
    }
    auto owner = std::make_shared<kernels::DeviceBuffer>(*std::move(buffer));
    StagingMemory memory;
    memory.bytes = {owner->data(), bytes};
    memory.owner = std::shared_ptr<std::byte>(owner, owner->data());
    return memory;
  }
  std::unique_ptr<RecordMover> NewMover() override { return MakeDeviceMover(); }

  DeviceLinkFactory SenderEnd(const StagingMemory&) override {
    return EndOf(CommunicatorMaker::End::kSender);
  }
  absl::StatusOr<DeviceLinkFactory> ReceiverEnd(const Fd&, uint64_t) override {
    return EndOf(CommunicatorMaker::End::kReceiver);
  }

 private:
  DeviceLinkFactory EndOf(CommunicatorMaker::End end) {
    return [this, end](uint64_t, LinkSay say) {
      return MakePairedLink(maker_.get(), end, std::move(say));
    };
  }

  const std::string name_ = "nccl";
  const std::unique_ptr<CommunicatorMaker> maker_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Fabric>> MakeNcclFabric() {
  if (kernels::DeviceCount() == 0) {
    return absl::UnavailableError("transport nccl: no NVIDIA driver or card is found");
  }
  absl::StatusOr<std::unique_ptr<CommunicatorMaker>> maker = LoadNccl();
  if (!maker.ok()) return maker.status();
  return std::make_unique<NcclFabric>(*std::move(maker));
}

}  // namespace baton::kvtransfer
