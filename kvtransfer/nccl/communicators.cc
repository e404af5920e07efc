#include "kvtransfer/nccl/communicators.h"

#include <cstring>
#include <deque>
#include <string>
#include <type_traits>
#include <utility>

#include <dlfcn.h>
#include <nccl.h>

#include "absl/strings/str_cat.h"
#include "kernels/runtime/event.h"
#include "kernels/runtime/stream.h"

namespace baton::kvtransfer {
namespace {

// The functions of libnccl.so.2, which is never unloaded.
struct Library {
  decltype(&ncclGetVersion) get_version = nullptr;
  decltype(&ncclGetErrorString) error_string = nullptr;
  decltype(&ncclGetLastError) last_error = nullptr;
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclCommInitRankConfig) init = nullptr;
  decltype(&ncclCommGetAsyncError) async_error = nullptr;
  decltype(&ncclCommAbort) abort = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) receive = nullptr;
};

constexpr const char* kFile = "libnccl.so.2";
// The first release whose non-blocking communicators can be aborted at any time.
constexpr int kOldest = NCCL_VERSION(2, 18, 0);

absl::StatusOr<const Library*> LoadOnce() {
  void* const library = dlopen(kFile, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return absl::UnavailableError(absl::StrCat("transport nccl needs ", kFile, ": ", dlerror()));
  }
  static Library all;
  absl::Status missing;
  const auto find = [&](const char* name, auto* function) {
    *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(dlsym(library, name));
    if (*function == nullptr && missing.ok()) {
      missing = absl::UnavailableError(absl::StrCat(kFile, " has no ", name));
    }
  };
  find("ncclGetVersion", &all.get_version);
  find("ncclGetErrorString", &all.error_string);
  find("ncclGetLastError", &all.last_error);
  find("ncclGetUniqueId", &all.get_unique_id);
  find("ncclCommInitRankConfig", &all.init);
  find("ncclCommGetAsyncError", &all.async_error);
  find("ncclCommAbort", &all.abort);
  find("ncclSend", &all.send);
  find("ncclRecv", &all.receive);
  if (!missing.ok()) return missing;
  int version = 0;
  if (all.get_version(&version) != ncclSuccess || version < kOldest) {
    return absl::UnavailableError(
        absl::StrCat(kFile, " is release ", version, ", needed is at least ", kOldest));
  }
  return &all;
}

// Channels take multiprocessors from the model and memory from the cache.
constexpr int kMaxChannels = 8;

class NcclCommunicator final : public Communicator {
 public:
  // ncclCommInitRankConfig has been called, or is about to be.
  explicit NcclCommunicator(const Library& library) : library_(library) {}
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

  const Library& library_;
  ncclComm_t communicator_ = nullptr;
  int peer_ = 0;
  kernels::Stream stream_;
  std::deque<kernels::Event> marks_;
  uint64_t passed_ = 0;
};

class NcclMaker final : public CommunicatorMaker {
 public:
  explicit NcclMaker(const Library& library) : library_(library) {}

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
  const Library& library_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<CommunicatorMaker>> LoadNccl() {
  static const absl::StatusOr<const Library*> loaded = LoadOnce();
  if (!loaded.ok()) return loaded.status();
  return std::make_unique<NcclMaker>(**loaded);
}

}  // namespace baton::kvtransfer
