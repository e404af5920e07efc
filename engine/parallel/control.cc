#include "engine/parallel/control.h"

#include <algorithm>
#include <optional>
#include <thread>
#include <utility>

#include <poll.h>

#include "absl/strings/str_cat.h"
#include "common/mutex.h"

namespace baton::engine {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kTick{250};
// For the last words to arrive before the process is gone.
constexpr std::chrono::milliseconds kLastWords{100};

}  // namespace

struct Control::Impl {
  // A connection, as the control thread reads it and any thread writes to it.
  struct Peer {
    explicit Peer(Link link)
        : rank(link.rank), socket(std::move(link.socket)), reader(std::move(link.reader)) {}

    const int rank;
    const Socket socket;
    FrameReader reader;                      // control thread, as the two below
    Clock::time_point heard = Clock::now();  // when something came last
    bool gone = false;
    Mutex sending;  // one frame at a time
  };

  Impl(int rank, std::vector<Link> links, Wakeup wakeup, std::chrono::nanoseconds silence,
       Handler handler)
      : rank(rank), silence(silence), handler(std::move(handler)), wakeup(std::move(wakeup)) {
    for (Link& link : links) peers.push_back(std::make_unique<Peer>(std::move(link)));
  }
  ~Impl();

  Peer& Way(int to) { return *peers[rank == 0 ? static_cast<size_t>(to) - 1 : 0]; }
  void Send(Peer& peer, const Frame& frame, std::span<const std::byte> payload);
  void Fail(const absl::Status& why);

  // --- Control thread.
  void Run();
  void Read(Peer& peer);
  absl::Status Take(Peer& peer, Frame frame);
  // `polled`: everything that had come by then has been read.
  void Tick(Clock::time_point polled);
  void Pulse(Peer& peer) const;
  void SayLastWords(const absl::Status& why);

  const int rank;
  const std::chrono::nanoseconds silence;
  const Handler handler;
  std::vector<std::unique_ptr<Peer>> peers;
  const Wakeup wakeup;  // once and for all: there is a fault, or the end

  Mutex mutex;
  bool relaxed ABSL_GUARDED_BY(mutex) = false;
  bool closing ABSL_GUARDED_BY(mutex) = false;
  absl::Status fault ABSL_GUARDED_BY(mutex);

  std::thread thread;  // last: it uses everything above
};

Control::Impl::~Impl() {
  {
    MutexLock lock(mutex);
    closing = true;
  }
  wakeup.Wake();
  if (thread.joinable()) thread.join();
}

void Control::Impl::Send(Peer& peer, const Frame& frame, std::span<const std::byte> payload) {
  const FrameHeader header = EncodeHeader(frame, payload.size());
  absl::Status status;
  {
    MutexLock lock(peer.sending);
    status = peer.socket.Send(header);
    if (status.ok()) status = peer.socket.Send(payload);
  }
  if (!status.ok()) {
    Fail(absl::UnavailableError(absl::StrCat("rank ", peer.rank, " ", status.message())));
  }
}

void Control::Impl::Fail(const absl::Status& why) {
  {
    MutexLock lock(mutex);
    if (relaxed || closing || !fault.ok()) return;
    fault = why;
  }
  wakeup.Wake();
}

void Control::Impl::Run() {
  std::vector<pollfd> polled;
  Clock::time_point next_tick = Clock::now();
  for (;;) {
    polled.assign(1, {.fd = wakeup.watched(), .events = POLLIN, .revents = 0});
    for (const auto& peer : peers) {
      polled.push_back({.fd = peer->gone ? -1 : peer->socket.fd(), .events = POLLIN, .revents = 0});
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next_tick - Clock::now());
    poll(polled.data(), polled.size(), static_cast<int>(std::max<int64_t>(left.count(), 0)));
    const Clock::time_point polled_at = Clock::now();
    for (size_t i = 0; i < peers.size(); ++i) {
      if (polled[i + 1].revents != 0) Read(*peers[i]);
    }
    if (Clock::now() >= next_tick) {
      Tick(polled_at);
      next_tick = Clock::now() + kTick;
    }
    absl::Status why;
    {
      MutexLock lock(mutex);
      if (closing) return;
      why = fault;
    }
    if (why.ok()) continue;
    SayLastWords(why);
    return handler.on_fault(why);
  }
}

void Control::Impl::Read(Peer& peer) {
  std::byte bytes[1 << 16];
  const absl::StatusOr<size_t> count = peer.socket.Receive(bytes, Clock::now());
  if (absl::IsDeadlineExceeded(count.status())) return;  // nothing there after all
  absl::Status status = count.status();
  if (count.ok()) {
    peer.heard = Clock::now();
    peer.reader.Append(std::span(bytes).first(*count));
  }
  while (status.ok()) {
    absl::StatusOr<std::optional<Frame>> frame = peer.reader.Next();
    if (frame.ok() && !frame->has_value()) return;
    status = frame.ok() ? Take(peer, **std::move(frame)) : frame.status();
  }
  peer.gone = true;
  Fail(absl::UnavailableError(absl::StrCat("rank ", peer.rank, " ", status.message())));
}

absl::Status Control::Impl::Take(Peer& peer, Frame frame) {
  if (rank == 0 && frame.from != peer.rank) {
    return absl::InvalidArgumentError(absl::StrCat("speaks as rank ", frame.from));
  }
  if (frame.type == FrameType::kPulse) return absl::OkStatus();
  if (frame.type == FrameType::kFault) {
    Fail(absl::UnavailableError(DecodeText(frame.payload)));
    return absl::OkStatus();
  }
  if (frame.to == rank) return handler.on_frame(peer.rank, std::move(frame));
  if (rank != 0 || frame.type != FrameType::kRows || frame.to > std::ssize(peers)) {
    return absl::InvalidArgumentError(absl::StrCat("sends to rank ", frame.to));
  }
  Send(Way(frame.to), frame, frame.payload);
  return absl::OkStatus();
}

void Control::Impl::Tick(Clock::time_point polled) {
  for (const auto& peer : peers) {
    if (peer->gone) continue;
    Pulse(*peer);
    // Not until now: forwarding what one sent takes its time, in which others are not read.
    if (polled - peer->heard > silence) {
      peer->gone = true;
      Fail(absl::UnavailableError(absl::StrCat("rank ", peer->rank, " says nothing any more")));
    }
  }
  const absl::Status status = handler.on_tick();
  if (!status.ok()) Fail(status);
}

void Control::Impl::Pulse(Peer& peer) const {
  if (!peer.sending.TryLock()) return;  // something is on its way, and says as much
  peer.socket.SendIfRoom(EncodeHeader({.type = FrameType::kPulse, .from = rank}, 0));
  peer.sending.Unlock();
}

// Rank 0 tells everybody, everybody tells rank 0.
void Control::Impl::SayLastWords(const absl::Status& why) {
  const std::vector<std::byte> text = EncodeText(std::string(why.message()));
  const FrameHeader header = EncodeHeader({.type = FrameType::kFault, .from = rank}, text.size());
  for (const auto& peer : peers) {
    if (!peer->sending.TryLock()) continue;  // it will find the connection closed
    if (peer->socket.Send(header).ok()) peer->socket.Send(text).IgnoreError();
    peer->socket.EndSending();
    peer->sending.Unlock();
  }
  std::this_thread::sleep_for(kLastWords);
}

Control::Control(int rank, std::vector<Link> links, Wakeup wakeup, std::chrono::nanoseconds silence,
                 Handler handler)
    : impl_(std::make_unique<Impl>(rank, std::move(links), std::move(wakeup), silence,
                                   std::move(handler))) {}
Control::~Control() = default;

void Control::Start() {
  impl_->thread = std::thread([impl = impl_.get()] { impl->Run(); });
}

void Control::Send(int to, Frame frame, std::span<const std::byte> payload) {
  frame.from = impl_->rank;
  frame.to = to;
  impl_->Send(impl_->Way(to), frame, payload);
}

void Control::SendToAll(const Frame& frame) {
  for (const auto& peer : impl_->peers) Send(peer->rank, frame, frame.payload);
}

void Control::Fail(const absl::Status& why) { impl_->Fail(why); }

void Control::Relax() {
  MutexLock lock(impl_->mutex);
  impl_->relaxed = true;
}

}  // namespace baton::engine
