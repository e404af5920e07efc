#include "kernels/runtime/nccl.h"

#include <chrono>
#include <mutex>
#include <thread>
#include <utility>

#include "kernels/runtime/nccl_library.h"

namespace baton::kernels {

namespace {

using nccl::Comm;
using nccl::Describe;
using nccl::Library;
using nccl::Result;

// Long enough for connections to be made between many devices.
constexpr std::chrono::seconds kPatience{60};
constexpr std::chrono::microseconds kPoll{50};
// Issuing an exchange takes some microseconds, and a decode step has two for every layer: sleeping
// would cost more than all of it.
constexpr std::chrono::microseconds kSpin{200};

// Whoever uses a communicator that does not block waits for it like this.
std::string Settle(Comm comm, const char* call, Result result) {
  const auto begin = std::chrono::steady_clock::now();
  while (result == nccl::kInProgress) {
    const auto waited = std::chrono::steady_clock::now() - begin;
    if (waited > kPatience) return std::string(call) + ": no end";
    if (waited > kSpin) std::this_thread::sleep_for(kPoll);
    const Result asked = Library::Get().async_error(comm, &result);
    if (asked != nccl::kSuccess) return Describe(call, asked, comm);
  }
  return result == nccl::kSuccess ? std::string() : Describe(call, result, comm);
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
  const Library& library = Library::Get();
  if (!library.missing.empty()) return library.missing;
  nccl::UniqueId unique;
  const Result result = library.get_unique_id(&unique);
  id = unique.bytes;
  return result == nccl::kSuccess ? std::string() : Describe("ncclGetUniqueId", result, nullptr);
}

std::string Communicator::Create(const Id& id, int rank, int ranks,
                                 std::optional<Communicator>& made) {
  const Library& library = Library::Get();
  if (!library.missing.empty()) return library.missing;
  nccl::Config config;
  Comm comm = nullptr;
  const Result result = library.comm_init(&comm, ranks, {id}, rank, &config);
  if (comm == nullptr) return Describe("ncclCommInitRankConfig", result, comm);
  made = Communicator(std::make_unique<Impl>(comm, rank));
  std::string error = Settle(comm, "ncclCommInitRankConfig", result);
  if (!error.empty()) made.reset();
  return error;
}

std::string Communicator::Exchange(std::span<const Piece> pieces, CUstream_st* stream) {
  const Library& library = Library::Get();
  const std::lock_guard lock(impl_->mutex);
  Result result = library.group_start();
  for (size_t r = 0; r < pieces.size() && Ok(result); ++r) {
    const Piece& piece = pieces[r];
    const int peer = static_cast<int>(r);
    if (peer == impl_->rank) continue;
    if (piece.to_bytes > 0) {
      result = library.send(piece.to, static_cast<size_t>(piece.to_bytes), nccl::kBytes, peer,
                            impl_->comm, stream);
    }
    if (piece.from_bytes > 0 && Ok(result)) {
      result = library.recv(piece.from, static_cast<size_t>(piece.from_bytes), nccl::kBytes, peer,
                            impl_->comm, stream);
    }
  }
  const Result ended = library.group_end();
  if (!Ok(result)) return Describe("ncclSend or ncclRecv", result, impl_->comm);
  return Settle(impl_->comm, "ncclGroupEnd", ended);
}

std::string Communicator::Health() {
  // While somebody exchanges, that call finds out.
  const std::unique_lock lock(impl_->mutex, std::try_to_lock);
  if (!lock.owns_lock()) return {};
  Result state = nccl::kSuccess;
  const Result asked = Library::Get().async_error(impl_->comm, &state);
  if (asked != nccl::kSuccess) return Describe("ncclCommGetAsyncError", asked, impl_->comm);
  return Ok(state) ? std::string() : Describe("NCCL", state, impl_->comm);
}

}  // namespace baton::kernels
