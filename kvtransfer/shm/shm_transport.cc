#include "kvtransfer/shm/shm_transport.h"

#include <chrono>
#include <cstring>
#include <map>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include <poll.h>
#include <sys/socket.h>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/mutex.h"
#include "common/wakeup.h"
#include "kvtransfer/completion_queue.h"
#include "kvtransfer/shm/arena.h"
#include "kvtransfer/shm/unix_socket.h"
#include "kvtransfer/shm/wire.h"

namespace baton::kvtransfer {
namespace {

// 128 MiB, of which only what is in use takes memory.
constexpr size_t kSlots = 256;
constexpr std::chrono::milliseconds kProbeTimeout{250};

template <typename Message>
std::span<const std::byte> BytesOf(const Message& message) {
  return std::as_bytes(std::span(&message, 1));
}

absl::StatusOr<Fd> Greet(const std::string& endpoint, const shm::Arena& arena) {
  absl::StatusOr<Fd> socket = shm::Connect(endpoint);
  if (!socket.ok()) return socket.status();
  const shm::Hello hello{.arena_bytes = arena.bytes()};
  absl::Status sent = shm::Send(*socket, BytesOf(hello), arena.read_only().get());
  if (!sent.ok()) return sent;
  return socket;
}

// `message` is a Welcome, and its nonce the arena's.
absl::Status CheckWelcome(std::span<const std::byte> message, const shm::Arena& arena) {
  shm::Welcome welcome;
  if (message.size() != sizeof(welcome)) return absl::UnavailableError("no Welcome came");
  std::memcpy(&welcome, message.data(), sizeof(welcome));
  if (welcome.kind != shm::Kind::kWelcome || welcome.version != shm::kVersion) {
    return absl::UnavailableError(absl::StrCat("the receiver speaks version ", welcome.version,
                                               " of shm, expected ", shm::kVersion));
  }
  return welcome.nonce == arena.nonce()
             ? absl::OkStatus()
             : absl::UnavailableError("the receiver does not see this process's memory");
}

// The connection to one endpoint. Everything but the socket is the transport's, under its lock.
struct Connection {
  Connection(std::string name, Fd fd) : endpoint(std::move(name)), socket(std::move(fd)) {}

  const std::string endpoint;
  const Fd socket;
  bool welcomed = false;
  bool dead = false;
  std::set<uint64_t> posts;  // outstanding
};

class ShmTransport final : public Transport {
 public:
  ShmTransport(shm::Arena arena, Wakeup wakeup)
      : arena_(std::move(arena)), wakeup_(std::move(wakeup)) {
    reader_ = std::thread([this] { ReadAnswers(); });
  }

  ~ShmTransport() override {
    {
      MutexLock lock(mutex_);
      stopping_ = true;
    }
    wakeup_.Wake();
    reader_.join();
    BATON_CHECK(arena_.taken() == 0) << arena_.taken() << " regions were not released";
  }

  const TransportCapabilities& capabilities() const override { return capabilities_; }
  void SetWakeup(std::function<void()> wakeup) override {
    completions_.SetWakeup(std::move(wakeup));
  }

  absl::StatusOr<Region> Register(size_t bytes) override {
    BATON_CHECK(bytes <= shm::kMaxFrameBytes) << bytes;
    absl::StatusOr<std::span<std::byte>> slot = arena_.Take();
    if (!slot.ok()) return slot.status();
    slots_[++last_region_] = *slot;
    return Region{last_region_, slot->first(bytes)};
  }

  void Release(RegionId region) override {
    const auto it = slots_.find(region);
    BATON_CHECK(it != slots_.end()) << "region " << region << " is not registered";
    arena_.Free(it->second);
    slots_.erase(it);
  }

  void Post(const PostRequest& request) override {
    MutexLock lock(mutex_);
    absl::StatusOr<std::shared_ptr<Connection>> to = ConnectionTo(std::string(request.endpoint));
    if (!to.ok()) {
      completions_.Push({.post = request.post, .status = to.status()});
      return;
    }
    Connection& connection = **to;
    const shm::Posted posted{.bytes = static_cast<uint32_t>(request.frame.size()),
                             .offset = arena_.OffsetOf(request.frame),
                             .post = request.post};
    connection.posts.insert(request.post);
    const bool added = by_post_.try_emplace(request.post, *to).second;
    BATON_CHECK(added) << "post " << request.post << " is outstanding";
    if (absl::Status sent = shm::Send(connection.socket, BytesOf(posted)); !sent.ok()) {
      Break(connection, sent);
    }
  }

  std::vector<Completion> Poll() override { return completions_.Take(); }

  void Cancel(uint64_t post) override {
    MutexLock lock(mutex_);
    const auto it = by_post_.find(post);
    if (it == by_post_.end()) return;
    const std::shared_ptr<Connection> connection = it->second;
    connection->posts.erase(post);
    by_post_.erase(it);
    completions_.Push({.post = post, .status = absl::CancelledError("cancelled")});
    Break(*connection, absl::UnavailableError("the connection was broken to cancel a frame"));
  }

 private:
  absl::StatusOr<std::shared_ptr<Connection>> ConnectionTo(const std::string& endpoint)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto it = by_endpoint_.find(endpoint);
    if (it != by_endpoint_.end()) return it->second;
    absl::StatusOr<Fd> socket = Greet(endpoint, arena_);
    if (!socket.ok()) return socket.status();
    auto connection = std::make_shared<Connection>(endpoint, *std::move(socket));
    by_endpoint_[endpoint] = connection;
    wakeup_.Wake();
    return connection;
  }

  // Fails what is outstanding on the connection, which is forgotten.
  void Break(Connection& connection, const absl::Status& why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (connection.dead) return;
    connection.dead = true;
    shutdown(connection.socket.get(), SHUT_RDWR);
    for (const uint64_t post : std::exchange(connection.posts, {})) {
      by_post_.erase(post);
      completions_.Push({.post = post, .status = why});
    }
    by_endpoint_.erase(connection.endpoint);
    wakeup_.Wake();
  }

  void ReadAnswers() {
    while (true) {
      std::vector<std::shared_ptr<Connection>> connections;
      {
        MutexLock lock(mutex_);
        if (stopping_) return;
        for (const auto& [endpoint, connection] : by_endpoint_) connections.push_back(connection);
      }
      std::vector<pollfd> watched = {{wakeup_.watched(), POLLIN, 0}};
      for (const auto& connection : connections) {
        watched.push_back({connection->socket.get(), POLLIN, 0});
      }
      poll(watched.data(), watched.size(), -1);
      wakeup_.Clear();
      for (size_t i = 0; i < connections.size(); ++i) {
        if (watched[i + 1].revents != 0) ReadFrom(*connections[i]);
      }
    }
  }

  void ReadFrom(Connection& connection) {
    std::array<std::byte, sizeof(shm::Answer) + shm::kMaxDetailBytes> message;
    while (true) {
      absl::StatusOr<std::optional<shm::Received>> received =
          shm::Receive(connection.socket, message);
      if (received.ok() && !received->has_value()) return;
      MutexLock lock(mutex_);
      if (connection.dead) return;
      absl::Status status = received.status();
      if (status.ok()) status = OnMessage(connection, std::span(message).first((*received)->bytes));
      if (status.ok()) continue;
      Break(connection,
            absl::UnavailableError(absl::StrCat(connection.endpoint, ": ", status.message())));
      return;
    }
  }

  absl::Status OnMessage(Connection& connection, std::span<const std::byte> message)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!connection.welcomed) {
      connection.welcomed = true;
      return CheckWelcome(message, arena_);
    }
    shm::Answer answer;
    if (message.size() < sizeof(answer)) return absl::UnavailableError("a message is too short");
    std::memcpy(&answer, message.data(), sizeof(answer));
    if (answer.kind != shm::Kind::kAnswer || answer.verdict >= kFrameVerdictCount ||
        connection.posts.erase(answer.post) == 0) {
      return absl::UnavailableError("an answer is not to a frame that was sent");
    }
    by_post_.erase(answer.post);
    const std::span<const std::byte> detail = message.subspan(sizeof(answer));
    completions_.Push(
        {.post = answer.post,
         .verdict = static_cast<FrameVerdict>(answer.verdict),
         .detail = std::string(reinterpret_cast<const char*>(detail.data()), detail.size())});
    return absl::OkStatus();
  }

  const TransportCapabilities capabilities_{.name = "shm",
                                            .max_frame_bytes = shm::kMaxFrameBytes,
                                            .max_frames_in_flight = shm::kCredit,
                                            .max_regions = kSlots};
  // Transfer thread only, but for the nonce.
  shm::Arena arena_;
  absl::flat_hash_map<RegionId, std::span<std::byte>> slots_;
  RegionId last_region_ = 0;

  CompletionQueue completions_;
  const Wakeup wakeup_;  // of the thread that reads
  Mutex mutex_;
  std::map<std::string, std::shared_ptr<Connection>> by_endpoint_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<uint64_t, std::shared_ptr<Connection>> by_post_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread reader_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Transport>> MakeShmTransport() {
  absl::StatusOr<shm::Arena> arena = shm::Arena::Create(kSlots);
  if (!arena.ok()) return arena.status();
  absl::StatusOr<Wakeup> wakeup = Wakeup::Create();
  if (!wakeup.ok()) return wakeup.status();
  return std::make_unique<ShmTransport>(*std::move(arena), *std::move(wakeup));
}

absl::Status ProbeShm(const std::string& endpoint) {
  const absl::StatusOr<shm::Arena> arena = shm::Arena::Create(/*slots=*/0);
  if (!arena.ok()) return arena.status();
  const absl::StatusOr<Fd> socket = Greet(endpoint, *arena);
  if (!socket.ok()) return socket.status();
  pollfd watched{socket->get(), POLLIN, 0};
  if (poll(&watched, 1, static_cast<int>(kProbeTimeout.count())) != 1) {
    return absl::UnavailableError(absl::StrCat(endpoint, " does not answer"));
  }
  std::array<std::byte, sizeof(shm::Welcome)> message;
  const absl::StatusOr<std::optional<shm::Received>> received = shm::Receive(*socket, message);
  if (!received.ok()) return received.status();
  return CheckWelcome(std::span(message).first(received->has_value() ? (*received)->bytes : 0),
                      *arena);
}

}  // namespace baton::kvtransfer
