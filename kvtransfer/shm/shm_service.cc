#include "kvtransfer/shm/shm_service.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>

#include "absl/strings/str_cat.h"
#include "common/acceptor.h"
#include "common/clock.h"
#include "common/wakeup.h"
#include "kvtransfer/shm/arena.h"
#include "kvtransfer/shm/unix_socket.h"
#include "kvtransfer/shm/wire.h"
#include "spdlog/spdlog.h"

namespace baton::kvtransfer {
namespace {

// Any process of the machine may connect. Workers of one machine are few, and say Hello at once.
constexpr size_t kMaxConnections = 256;
constexpr std::chrono::seconds kHelloPatience{1};
// How late it may be noticed that no Hello came, or that the door can be watched again.
constexpr int kTickMs = 100;

struct Connection {
  Fd socket;
  shm::Mapping arena{};  // of the sender; empty before Hello
  Clock::TimePoint opened = Clock::Real().Now();

  bool greeted() const { return !arena.bytes().empty(); }
};

// The sender's memory, which it cannot make smaller than `bytes` any more.
absl::StatusOr<shm::Mapping> MapArena(const Fd& memory, uint64_t bytes) {
  struct stat about {};
  const int seals = memory.valid() ? fcntl(memory.get(), F_GET_SEALS) : -1;
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(memory.get(), &about) != 0 ||
      bytes < shm::kHeaderBytes || static_cast<uint64_t>(about.st_size) < bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("no sealed shared memory of ", bytes, " bytes came with Hello"));
  }
  return shm::Mapping::Create(memory, bytes, /*writable=*/false);
}

}  // namespace

struct ShmService::Impl {
  Impl(Receiver* to, Fd socket, Wakeup end)
      : receiver(to),
        door("shm", std::move(socket)),
        wakeup(std::move(end)),
        thread([this] { Serve(); }) {}

  void Serve();
  void TakeNew();
  // Those that had not said Hello in time, as of `now`.
  void DropSilent(Clock::TimePoint now);
  // One message of the sender. An error ends the connection.
  absl::Status Read(Connection& connection);
  absl::Status OnHello(Connection& connection, const shm::Hello& hello, const Fd& memory);
  absl::Status OnPosted(Connection& connection, const shm::Posted& posted);

  Receiver* const receiver;
  Acceptor door;                        // thread only
  const Wakeup wakeup;                  // at the end
  std::vector<Connection> connections;  // thread only
  std::atomic<size_t> connection_count = 0;
  std::atomic<bool> stopping = false;
  std::thread thread;
};

void ShmService::Impl::Serve() {
  while (!stopping) {
    std::vector<pollfd> watched = {{wakeup.watched(), POLLIN, 0}, {door.watched(), POLLIN, 0}};
    bool wait = watched[1].fd >= 0;  // as long as it takes
    for (const Connection& connection : connections) {
      watched.push_back({connection.socket.get(), POLLIN, 0});
      wait &= connection.greeted();
    }
    poll(watched.data(), watched.size(), wait ? -1 : kTickMs);
    const Clock::TimePoint now = Clock::Real().Now();  // a frame may take its time
    for (size_t i = watched.size(); i-- > 2;) {        // from the back: ended ones are erased
      if (watched[i].revents == 0) continue;
      const auto it = connections.begin() + static_cast<std::ptrdiff_t>(i - 2);
      if (const absl::Status status = Read(*it); !status.ok()) {
        spdlog::debug("shared memory of a sender: {}", status.ToString());
        connections.erase(it);
      }
    }
    DropSilent(now);
    if (watched[1].revents != 0) TakeNew();
    connection_count = connections.size();
  }
  connections.clear();
}

void ShmService::Impl::TakeNew() {
  Fd socket = door.Accept();
  if (!socket.valid()) return;
  if (connections.size() < kMaxConnections) {
    connections.push_back({.socket = std::move(socket)});
  } else {
    spdlog::warn("shm: a sender is refused: there are {} already", connections.size());
  }
}

void ShmService::Impl::DropSilent(Clock::TimePoint now) {
  std::erase_if(connections, [now](const Connection& connection) {
    return !connection.greeted() && now - connection.opened > kHelloPatience;
  });
}

absl::Status ShmService::Impl::Read(Connection& connection) {
  std::array<std::byte, std::max(sizeof(shm::Hello), sizeof(shm::Posted))> message;
  absl::StatusOr<std::optional<shm::Received>> received = shm::Receive(connection.socket, message);
  if (!received.ok()) return received.status();
  if (!received->has_value()) return absl::OkStatus();
  shm::Hello hello;
  shm::Posted posted;
  const size_t bytes = (*received)->bytes;
  if (!connection.greeted() && bytes == sizeof(hello)) {
    std::memcpy(&hello, message.data(), sizeof(hello));
    return OnHello(connection, hello, (*received)->passed);
  }
  if (connection.greeted() && bytes == sizeof(posted)) {
    std::memcpy(&posted, message.data(), sizeof(posted));
    return OnPosted(connection, posted);
  }
  return absl::InvalidArgumentError(absl::StrCat("a message of ", bytes, " bytes"));
}

absl::Status ShmService::Impl::OnHello(Connection& connection, const shm::Hello& hello,
                                       const Fd& memory) {
  shm::Welcome welcome;
  if (hello.kind != shm::Kind::kHello || hello.version != shm::kVersion) {
    shm::Send(connection.socket, std::as_bytes(std::span(&welcome, 1))).IgnoreError();
    return absl::InvalidArgumentError(
        absl::StrCat("Hello of version ", hello.version, ", expected ", shm::kVersion));
  }
  absl::StatusOr<shm::Mapping> arena = MapArena(memory, hello.arena_bytes);
  if (!arena.ok()) return arena.status();
  connection.arena = *std::move(arena);
  std::memcpy(&welcome.nonce, connection.arena.bytes().data(), sizeof(welcome.nonce));
  return shm::Send(connection.socket, std::as_bytes(std::span(&welcome, 1)));
}

// [PD-8] Decode: records go from the sender's memory to the cache, verified on the way.
absl::Status ShmService::Impl::OnPosted(Connection& connection, const shm::Posted& posted) {
  const std::span<const std::byte> arena = connection.arena.bytes();
  if (posted.kind != shm::Kind::kPosted || posted.bytes > shm::kMaxFrameBytes ||
      posted.offset > arena.size() || posted.bytes > arena.size() - posted.offset) {
    return absl::InvalidArgumentError(absl::StrCat("a frame of ", posted.bytes, " bytes at ",
                                                   posted.offset, " lies outside of the arena"));
  }
  std::string detail;
  const FrameVerdict verdict =
      receiver->OnFrame(arena.subspan(posted.offset, posted.bytes), &detail);
  const shm::Answer answer{.verdict = static_cast<uint32_t>(verdict), .post = posted.post};
  std::array<std::byte, sizeof(answer) + shm::kMaxDetailBytes> message;
  std::memcpy(message.data(), &answer, sizeof(answer));
  const size_t detail_bytes = std::min(detail.size(), shm::kMaxDetailBytes);
  std::memcpy(message.data() + sizeof(answer), detail.data(), detail_bytes);
  return shm::Send(connection.socket, std::span(message).first(sizeof(answer) + detail_bytes));
}

ShmService::ShmService(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

absl::StatusOr<std::unique_ptr<ShmService>> ShmService::Start(Receiver* receiver,
                                                              Incarnation incarnation) {
  absl::StatusOr<Fd> listener = shm::Listen(shm::Endpoint(incarnation));
  if (!listener.ok()) return listener.status();
  absl::StatusOr<Wakeup> wakeup = Wakeup::Create();
  if (!wakeup.ok()) return wakeup.status();
  auto impl = std::make_unique<Impl>(receiver, *std::move(listener), *std::move(wakeup));
  return std::unique_ptr<ShmService>(new ShmService(std::move(impl)));
}

ShmService::~ShmService() {
  impl_->stopping = true;
  impl_->wakeup.Wake();
  impl_->thread.join();
}

size_t ShmService::connections() const { return impl_->connection_count; }

}  // namespace baton::kvtransfer
