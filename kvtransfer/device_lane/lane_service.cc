#include "kvtransfer/device_lane/lane_service.h"

#include <atomic>
#include <list>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include <poll.h>
#include <time.h>

#include "common/acceptor.h"
#include "common/mutex.h"
#include "common/wakeup.h"
#include "kvtransfer/device_lane/lane_probe.h"
#include "kvtransfer/device_lane/lane_receiver.h"
#include "kvtransfer/device_lane/unix_lane.h"
#include "spdlog/spdlog.h"

namespace baton::kvtransfer {
namespace {

// How soon a group that has arrived is noticed, and how soon a deadline.
constexpr timespec kBusyWait{0, 20'000};
constexpr timespec kIdleWait{0, 50'000'000};
// A sender says Hello as soon as it is connected.
constexpr std::chrono::seconds kHelloPatience{1};

struct Connection {
  explicit Connection(std::unique_ptr<LaneChannel> opened) : channel(std::move(opened)) {}

  const std::unique_ptr<LaneChannel> channel;
  const Clock::TimePoint opened = Clock::Real().Now();
  std::unique_ptr<LaneReceiver> lane;  // null before Hello
  absl::Status broken;
};

std::vector<std::span<std::byte>> Split(std::span<std::byte> memory, size_t bytes) {
  std::vector<std::span<std::byte>> groups;
  for (; memory.size() >= bytes; memory = memory.subspan(bytes)) {
    groups.push_back(memory.first(bytes));
  }
  return groups;
}

}  // namespace

struct LaneService::Impl {
  Impl(Fabric* from, Receiver* to, Fd socket, Wakeup wake, StagingMemory staging_memory,
       const LaneServiceOptions& with)
      : options(with),
        fabric(*from),
        receiver(*to),
        door(std::string(from->name()), std::move(socket)),
        wakeup(std::move(wake)),
        memory(std::move(staging_memory)),
        staging(Split(memory.bytes, options.group_bytes)),
        thread([this] { Serve(); }) {}

  void Serve();
  void TakeNew(bool knocked);
  void Take(std::unique_ptr<LaneChannel> channel);
  // What the sender has said. An error ends the connection.
  absl::Status ReadFrom(Connection& connection);
  absl::Status OnHello(Connection& connection, const LaneHello& hello);
  FrameVerdict OnGroup(std::span<const std::byte> group, std::string* detail);

  const LaneServiceOptions options;
  Fabric& fabric;
  Receiver& receiver;
  Acceptor door;  // thread only
  const Wakeup wakeup;
  const StagingMemory memory;
  StagingGroups staging;               // thread only, as all below
  std::unique_ptr<RecordMover> mover;  // made on the thread, whose device it uses
  std::list<Connection> connections;
  Mutex mutex;
  std::vector<std::unique_ptr<LaneChannel>> added ABSL_GUARDED_BY(mutex);  // from other threads
  std::atomic<size_t> connection_count = 0;
  std::atomic<bool> stopping = false;
  std::thread thread;
};

void LaneService::Impl::Serve() {
  mover = fabric.NewMover();
  while (!stopping) {
    std::vector<pollfd> watched = {{wakeup.watched(), POLLIN, 0}, {door.watched(), POLLIN, 0}};
    bool busy = false;
    for (const Connection& connection : connections) {
      watched.push_back({connection.channel->descriptor(), POLLIN, 0});
      busy |= connection.lane != nullptr && connection.lane->busy();
    }
    ppoll(watched.data(), watched.size(), busy ? &kBusyWait : &kIdleWait, nullptr);
    wakeup.Clear();
    for (Connection& connection : connections) {
      connection.broken.Update(ReadFrom(connection));
      if (connection.broken.ok() && connection.lane != nullptr) connection.lane->Poll();
    }
    connections.remove_if([this](const Connection& connection) {
      if (connection.broken.ok()) return false;
      spdlog::debug("{}: a sender: {}", fabric.name(), connection.broken.ToString());
      return true;
    });
    TakeNew(watched[1].revents != 0);
    connection_count = connections.size();
  }
  connections.clear();
  mover.reset();
}

void LaneService::Impl::TakeNew(bool knocked) {
  if (Fd socket = knocked ? door.Accept() : Fd(); socket.valid()) {
    Take(MakeUnixLane(std::move(socket)));
  }
  MutexLock lock(mutex);
  for (std::unique_ptr<LaneChannel>& channel : std::exchange(added, {})) {
    channel->SetWakeup([this] { wakeup.Wake(); });
    Take(std::move(channel));
    wakeup.Wake();  // it may have said something before
  }
}

void LaneService::Impl::Take(std::unique_ptr<LaneChannel> channel) {
  if (connections.size() < options.connections) {
    connections.emplace_back(std::move(channel));
  } else {
    spdlog::warn("{}: a sender is refused: there are {} already", fabric.name(),
                 connections.size());
  }
}

absl::Status LaneService::Impl::ReadFrom(Connection& connection) {
  while (true) {
    auto message = connection.channel->Receive();
    if (!message.ok()) return message.status();
    if (!message->has_value()) break;
    if (const auto* hello = std::get_if<LaneHello>(&**message)) {
      if (absl::Status status = OnHello(connection, *hello); !status.ok()) return status;
    } else if (connection.lane != nullptr) {
      connection.lane->OnMessage(std::get<LaneMessage>(**message));
    } else {
      return absl::InvalidArgumentError("a message came before Hello");
    }
  }
  const bool late = Clock::Real().Now() - connection.opened > kHelloPatience;
  if (connection.lane == nullptr && late) return absl::DeadlineExceededError("no Hello came");
  return absl::OkStatus();
}

absl::Status LaneService::Impl::OnHello(Connection& connection, const LaneHello& hello) {
  if (connection.lane != nullptr) return absl::InvalidArgumentError("a second Hello");
  absl::StatusOr<DeviceLinkFactory> end = fabric.ReceiverEnd(hello.memory, hello.bytes);
  if (!end.ok()) {
    spdlog::warn("{}: a sender's memory: {}", fabric.name(), end.status().ToString());
    return end.status();
  }
  connection.lane = std::make_unique<LaneReceiver>(
      LaneOptions{.patience = fabric.patience()}, *std::move(end), &staging,
      [this](std::span<const std::byte> group, std::string* detail) {
        return OnGroup(group, detail);
      },
      [&connection](const LaneMessage& message) {
        connection.broken.Update(connection.channel->Send(message));
      },
      Clock::Real());
  return absl::OkStatus();
}

// [PD-8] Decode: the group is this end's own copy, which the sender cannot change any more.
FrameVerdict LaneService::Impl::OnGroup(std::span<const std::byte> group, std::string* detail) {
  if (group.size() != kProbeBytes) return receiver.OnDeviceFrame(group, *mover, detail);
  Probe probe;
  mover->Read(group.data(), probe);
  *detail = ProbeAnswer(probe);
  return FrameVerdict::kAccepted;
}

LaneService::LaneService(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

absl::StatusOr<std::unique_ptr<LaneService>> LaneService::Start(Fabric* fabric, Receiver* receiver,
                                                                Fd listener,
                                                                const LaneServiceOptions& options) {
  absl::StatusOr<StagingMemory> memory = fabric->Allocate(options.groups * options.group_bytes);
  if (!memory.ok()) return memory.status();
  absl::StatusOr<Wakeup> wakeup = Wakeup::Create();
  if (!wakeup.ok()) return wakeup.status();
  auto impl = std::make_unique<Impl>(fabric, receiver, std::move(listener), *std::move(wakeup),
                                     *std::move(memory), options);
  return std::unique_ptr<LaneService>(new LaneService(std::move(impl)));
}

LaneService::~LaneService() {
  impl_->stopping = true;
  impl_->wakeup.Wake();
  impl_->thread.join();
}

void LaneService::Add(std::unique_ptr<LaneChannel> channel) {
  {
    MutexLock lock(impl_->mutex);
    const bool room = impl_->added.size() < impl_->options.connections;
    if (room) impl_->added.push_back(std::move(channel));
  }
  impl_->wakeup.Wake();
}

size_t LaneService::connections() const { return impl_->connection_count; }

}  // namespace baton::kvtransfer
