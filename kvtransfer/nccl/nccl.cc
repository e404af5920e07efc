#include "kvtransfer/nccl/nccl.h"

#include <cstring>
#include <deque>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/runtime/buffer.h"
#include "kernels/runtime/device.h"
#include "kernels/runtime/event.h"
#include "kernels/runtime/stream.h"
#include "kvtransfer/device_lane/device_mover.h"
#include "kvtransfer/device_lane/paired_link.h"
#include "kvtransfer/nccl/nccl_library.h"

namespace baton::kvtransfer {
namespace {

// Channels take multiprocessors from the model and memory from the cache.
constexpr int kMaxChannels = 8;

class NcclCommunicator final : public Communicator {
 public:
  // ncclCommInitRankConfig has been called, or is about to be.
  explicit NcclCommunicator(const nccl::Library& library) : library_(library) {}
  ~NcclCommunicator() override {
    if (communicator_ != nullptr) library_.abort(communicator_);
    stream_.Synchronize();
  }

  absl::Status Join(const ncclUniqueId& id, int rank) {
    peer_ = 1 - rank;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    config.maxCTAs = kMaxChannels;
    return Check(library_.init(&communicator_, 2, id, rank, &config), "ncclCommInitRankConfig");
  }

  absl::StatusOr<bool> Ready() override {
    ncclResult_t state = ncclSuccess;
    absl::Status status =
        Check(library_.async_error(communicator_, &state), "ncclCommGetAsyncError");
    if (status.ok()) status = Check(state, "communicator");
    if (!status.ok()) return status;
    return state == ncclSuccess;
  }
  absl::Status Send(std::span<const std::byte> bytes) override {
    return Check(
        library_.send(bytes.data(), bytes.size(), ncclUint8, peer_, communicator_, stream_.get()),
        "ncclSend");
  }
  absl::Status Receive(std::span<std::byte> bytes) override {
    return Check(library_.receive(bytes.data(), bytes.size(), ncclUint8, peer_, communicator_,
                                  stream_.get()),
                 "ncclRecv");
  }
  void Mark() override { marks_.emplace_back().Record(stream_.get()); }
  uint64_t Passed() override {
    for (; !marks_.empty() && marks_.front().Done(); ++passed_) marks_.pop_front();
    return passed_;
  }

 private:
  absl::Status Check(ncclResult_t result, const char* call) const {
    if (result == ncclSuccess || result == ncclInProgress) return absl::OkStatus();
    return absl::UnavailableError(absl::StrCat(call, ": ", library_.error_string(result), " (",
                                               library_.last_error(communicator_), ")"));
  }

  const nccl::Library& library_;
  ncclComm_t communicator_ = nullptr;
  int peer_ = 0;
  kernels::Stream stream_;
  std::deque<kernels::Event> marks_;
  uint64_t passed_ = 0;
};

class NcclMaker final : public CommunicatorMaker {
 public:
  explicit NcclMaker(const nccl::Library& library) : library_(library) {}

  absl::StatusOr<std::string> NewId() override {
    ncclUniqueId id;
    if (const ncclResult_t result = library_.get_unique_id(&id); result != ncclSuccess) {
      return absl::UnavailableError(
          absl::StrCat("ncclGetUniqueId: ", library_.error_string(result)));
    }
    return std::string(id.internal, sizeof(id.internal));
  }

  absl::StatusOr<std::unique_ptr<Communicator>> Join(const std::string& name, End end) override {
    ncclUniqueId id;
    if (name.size() != sizeof(id.internal)) {
      return absl::UnavailableError(absl::StrCat("a name of ", name.size(), " bytes came"));
    }
    std::memcpy(id.internal, name.data(), name.size());
    auto communicator = std::make_unique<NcclCommunicator>(library_);
    absl::Status status = communicator->Join(id, end == End::kSender ? 0 : 1);
    if (!status.ok()) return status;
    return communicator;
  }

 private:
  const nccl::Library& library_;
};

class NcclFabric final : public Fabric {
 public:
  explicit NcclFabric(const nccl::Library& library) : maker_(library) {}

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
  absl::StatusOr<DeviceLinkFactory> ReceiverEnd(const shm::Fd&, uint64_t) override {
    return EndOf(CommunicatorMaker::End::kReceiver);
  }

 private:
  DeviceLinkFactory EndOf(CommunicatorMaker::End end) {
    return [this, end](uint64_t, std::function<void(std::string)> say) {
      return MakePairedLink(&maker_, end, std::move(say));
    };
  }

  const std::string name_ = "nccl";
  NcclMaker maker_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Fabric>> MakeNcclFabric() {
  if (kernels::DeviceCount() == 0) {
    return absl::UnavailableError("transport nccl: no NVIDIA driver or card is found");
  }
  absl::StatusOr<const nccl::Library*> library = nccl::Load();
  if (!library.ok()) return library.status();
  return std::make_unique<NcclFabric>(**library);
}

}  // namespace baton::kvtransfer
