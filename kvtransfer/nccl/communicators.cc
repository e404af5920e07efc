#include "kvtransfer/nccl/communicators.h"

#include <cstring>
#include <deque>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/runtime/event.h"
#include "kernels/runtime/nccl_library.h"
#include "kernels/runtime/stream.h"

namespace baton::kvtransfer {
namespace {

namespace nccl = kernels::nccl;
using nccl::Library;
using nccl::Result;

// Channels take multiprocessors from the model and memory from the cache.
constexpr int kMaxChannels = 8;

class NcclCommunicator final : public Communicator {
 public:
  ~NcclCommunicator() override {
    if (communicator_ != nullptr) library_.comm_abort(communicator_);
    stream_.Synchronize();
  }

  absl::Status Join(const nccl::UniqueId& id, int rank) {
    peer_ = 1 - rank;
    nccl::Config config{.max_ctas = kMaxChannels};
    return Check(library_.comm_init(&communicator_, 2, id, rank, &config),
                 "ncclCommInitRankConfig");
  }

  absl::StatusOr<bool> Ready() override {
    Result state = nccl::kSuccess;
    absl::Status status =
        Check(library_.async_error(communicator_, &state), "ncclCommGetAsyncError");
    if (status.ok()) status = Check(state, "communicator");
    if (!status.ok()) return status;
    return state == nccl::kSuccess;
  }
  absl::Status Send(std::span<const std::byte> bytes) override {
    return Check(library_.send(bytes.data(), bytes.size(), nccl::kBytes, peer_, communicator_,
                               stream_.get()),
                 "ncclSend");
  }
  absl::Status Receive(std::span<std::byte> bytes) override {
    return Check(library_.recv(bytes.data(), bytes.size(), nccl::kBytes, peer_, communicator_,
                               stream_.get()),
                 "ncclRecv");
  }
  void Mark() override { marks_.emplace_back().Record(stream_.get()); }
  uint64_t Passed() override {
    for (; !marks_.empty() && marks_.front().Done(); ++passed_) marks_.pop_front();
    return passed_;
  }

 private:
  absl::Status Check(Result result, const char* call) const {
    if (nccl::Ok(result)) return absl::OkStatus();
    return absl::UnavailableError(nccl::Describe(call, result, communicator_));
  }

  const Library& library_ = Library::Get();
  nccl::Comm communicator_ = nullptr;
  int peer_ = 0;
  kernels::Stream stream_;
  std::deque<kernels::Event> marks_;
  uint64_t passed_ = 0;
};

class NcclMaker final : public CommunicatorMaker {
 public:
  absl::StatusOr<std::string> NewId() override {
    nccl::UniqueId id;
    if (const Result result = Library::Get().get_unique_id(&id); result != nccl::kSuccess) {
      return absl::UnavailableError(nccl::Describe("ncclGetUniqueId", result, nullptr));
    }
    return std::string(id.bytes.data(), id.bytes.size());
  }

  absl::StatusOr<std::unique_ptr<Communicator>> Join(const std::string& name, End end) override {
    nccl::UniqueId id;
    if (name.size() != id.bytes.size()) {
      return absl::UnavailableError(absl::StrCat("a name of ", name.size(), " bytes came"));
    }
    std::memcpy(id.bytes.data(), name.data(), name.size());
    auto communicator = std::make_unique<NcclCommunicator>();
    absl::Status status = communicator->Join(id, end == End::kSender ? 0 : 1);
    if (!status.ok()) return status;
    return communicator;
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<CommunicatorMaker>> LoadNccl() {
  const std::string& missing = Library::Get().missing;
  if (!missing.empty()) return absl::UnavailableError(absl::StrCat("transport nccl: ", missing));
  return std::make_unique<NcclMaker>();
}

}  // namespace baton::kvtransfer
