#include "kernels/runtime/nccl.h"

#include <chrono>
#include <climits>
#include <mutex>
#include <thread>
#include <utility>

#include <dlfcn.h>

#include "common/base/check.h"

namespace baton::kernels {

namespace {

constexpr const char* kLibrary = "libnccl.so.2";

// The parts of NCCL's binary interface that are used here, which 2.18 and later have.
using Comm = struct ncclComm*;
enum Result : int { kSuccess = 0, kInProgress = 7 };
constexpr int kBytes = 0;  // ncclInt8
struct Config {
  size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 21800;
  int blocking = 0;
  int cga_cluster_size = INT_MIN;  // INT_MIN and null: as the library likes
  int min_ctas = INT_MIN;
  int max_ctas = INT_MIN;
  const char* net_name = nullptr;
  int split_share = INT_MIN;
};
struct UniqueId {
  Communicator::Id bytes;
};

struct Library {
  Result (*get_unique_id)(UniqueId*);
  Result (*comm_init)(Comm*, int, UniqueId, int, Config*);
  Result (*comm_abort)(Comm);
  Result (*async_error)(Comm, Result*);
  Result (*group_start)();
  Result (*group_end)();
  Result (*send)(const void*, size_t, int, int, Comm, CUstream_st*);
  Result (*recv)(void*, size_t, int, int, Comm, CUstream_st*);
  const char* (*error_string)(Result);
  std::string missing;  // why it cannot be used; empty: it can

  static const Library& Get() {
    static const Library library;
    return library;
  }

 private:
  Library() {
    void* const handle = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      missing = std::string("NCCL cannot be loaded: ") + dlerror();
      return;
    }
    const auto find = [&](const char* name, auto& function) {
      void* const found = dlsym(handle, name);
      if (found == nullptr) missing = std::string(kLibrary) + " has no " + name;
      function = reinterpret_cast<std::decay_t<decltype(function)>>(found);
    };
    find("ncclGetUniqueId", get_unique_id);
    find("ncclCommInitRankConfig", comm_init);
    find("ncclCommAbort", comm_abort);
    find("ncclCommGetAsyncError", async_error);
    find("ncclGroupStart", group_start);
    find("ncclGroupEnd", group_end);
    find("ncclSend", send);
    find("ncclRecv", recv);
    find("ncclGetErrorString", error_string);
  }
};

std::string Failed(const char* call, Result result) {
  return std::string(call) + ": " + Library::Get().error_string(result);
}

// Long enough for connections to be made between many devices.
constexpr std::chrono::seconds kPatience{60};
constexpr std::chrono::microseconds kPoll{50};
// Issuing an exchange takes some microseconds, and a decode step has two for every layer: sleeping
// would cost more than all of it.
constexpr std::chrono::microseconds kSpin{200};

// Whoever uses a communicator that does not block waits for it like this.
std::string Settle(Comm comm, const char* call, Result result) {
  const auto begin = std::chrono::steady_clock::now();
  while (result == kInProgress) {
    const auto waited = std::chrono::steady_clock::now() - begin;
    if (waited > kPatience) return std::string(call) + ": no end";
    if (waited > kSpin) std::this_thread::sleep_for(kPoll);
    const Result asked = Library::Get().async_error(comm, &result);
    if (asked != kSuccess) return Failed(call, asked);
  }
  return result == kSuccess ? std::string() : Failed(call, result);
}

}  // namespace

struct Communicator::Impl {
  explicit Impl(Comm comm, int rank) : comm(comm), rank(rank) {}
  ~Impl() { Library::Get().comm_abort(comm); }

  const Comm comm;
  const int rank;
  std::mutex mutex;  // one call at a time
};

Communicator::Communicator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Communicator::Communicator(Communicator&& other) noexcept = default;
Communicator& Communicator::operator=(Communicator&& other) noexcept = default;
Communicator::~Communicator() = default;

std::string Communicator::MakeId(Id& id) {
  const Library& nccl = Library::Get();
  if (!nccl.missing.empty()) return nccl.missing;
  UniqueId unique{};
  const Result result = nccl.get_unique_id(&unique);
  id = unique.bytes;
  return result == kSuccess ? std::string() : Failed("ncclGetUniqueId", result);
}

std::string Communicator::Create(const Id& id, int rank, int ranks,
                                 std::optional<Communicator>& made) {
  const Library& nccl = Library::Get();
  if (!nccl.missing.empty()) return nccl.missing;
  Config config;
  Comm comm = nullptr;
  const Result result = nccl.comm_init(&comm, ranks, UniqueId{id}, rank, &config);
  if (comm == nullptr) return Failed("ncclCommInitRankConfig", result);
  made = Communicator(std::make_unique<Impl>(comm, rank));
  std::string error = Settle(comm, "ncclCommInitRankConfig", result);
  if (!error.empty()) made.reset();
  return error;
}

std::string Communicator::Exchange(std::span<const Piece> pieces, CUstream_st* stream) {
  const Library& nccl = Library::Get();
  const std::lock_guard lock(impl_->mutex);
  const auto ok = [](Result result) { return result == kSuccess || result == kInProgress; };
  Result result = nccl.group_start();
  for (size_t r = 0; r < pieces.size() && ok(result); ++r) {
    const Piece& piece = pieces[r];
    const int peer = static_cast<int>(r);
    if (peer == impl_->rank) continue;
    if (piece.to_bytes > 0) {
      result = nccl.send(piece.to, static_cast<size_t>(piece.to_bytes), kBytes, peer, impl_->comm,
                         stream);
    }
    if (piece.from_bytes > 0 && ok(result)) {
      result = nccl.recv(piece.from, static_cast<size_t>(piece.from_bytes), kBytes, peer,
                         impl_->comm, stream);
    }
  }
  const Result ended = nccl.group_end();
  if (!ok(result)) return Failed("ncclSend or ncclRecv", result);
  return Settle(impl_->comm, "ncclGroupEnd", ended);
}

std::string Communicator::Health() {
  // While somebody exchanges, that call finds out.
  const std::unique_lock lock(impl_->mutex, std::try_to_lock);
  if (!lock.owns_lock()) return {};
  Result state = kSuccess;
  const Result asked = Library::Get().async_error(impl_->comm, &state);
  if (asked != kSuccess) return Failed("ncclCommGetAsyncError", asked);
  return state == kSuccess || state == kInProgress ? std::string() : Failed("NCCL", state);
}

}  // namespace baton::kernels
