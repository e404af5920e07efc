#include "engine/parallel/expert_group.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <thread>
#include <utility>

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/mutex.h"
#include "common/status_macros.h"
#include "engine/parallel/rendezvous.h"
#include "spdlog/spdlog.h"

namespace baton::engine {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kTick{250};
// For the last words to arrive before the process is gone.
constexpr std::chrono::milliseconds kLastWords{100};

}  // namespace

void EndProcess(const absl::Status& why) {
  spdlog::error("the expert-parallel group has ended: {}", std::string(why.message()));
  spdlog::default_logger()->flush();
  std::_Exit(EXIT_FAILURE);
}

struct ExpertGroup::Impl {
  // A connection, as the control thread reads it and any thread writes to it.
  struct Peer {
    explicit Peer(Link joined)
        : rank(joined.rank), socket(std::move(joined.socket)), reader(std::move(joined.reader)) {}

    const int rank;
    const Socket socket;
    FrameReader reader;                      // control thread
    Clock::time_point heard = Clock::now();  // control thread
    bool gone = false;                       // control thread
    Mutex sending;                           // one frame at a time
  };

  Impl(const ExpertGroupOptions& options, std::vector<Link> links)
      : options(options),
        board(options.size),
        inbox(static_cast<size_t>(options.size)),
        leaving(static_cast<size_t>(options.size)),
        stop(eventfd(0, EFD_CLOEXEC)) {
    for (Link& link : links) peers.push_back(std::make_unique<Peer>(std::move(link)));
    control = std::thread([this] { Control(); });
  }
  ~Impl();

  bool leads() const { return options.rank == 0; }
  // Rank 0 has a peer for each other rank, the others have rank 0.
  Peer& Way(int rank) { return *peers[leads() ? static_cast<size_t>(rank) - 1 : 0]; }

  // --- Control thread.
  void Control();
  void Read(Peer& peer);
  absl::Status Handle(Peer& peer, Frame frame);
  void Tick();

  // --- Any thread.
  void Send(Peer& peer, Frame frame, std::span<const std::byte> payload);
  void Broadcast(const Frame& frame, int except = -1);
  void Speak(uint64_t after, const Wish& wish);
  Step Take() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void Said(int rank, uint64_t after, const Wish& wish);  // rank 0
  void Decide();                                          // rank 0
  void Begin(const Step& step);
  void Left(int rank);  // rank 0
  void Dissolve();
  void Fail(const absl::Status& why);

  const ExpertGroupOptions options;
  std::vector<std::unique_ptr<Peer>> peers;

  Mutex mutex;
  CondVar changed;
  StepBoard board ABSL_GUARDED_BY(mutex);  // rank 0's
  Clock::time_point decided_at ABSL_GUARDED_BY(mutex) = Clock::now();
  bool failing ABSL_GUARDED_BY(mutex) = false;      // the others are being told
  absl::Status fault ABSL_GUARDED_BY(mutex);        // once they have been
  std::optional<Step> next ABSL_GUARDED_BY(mutex);  // decided, not taken
  uint64_t taken ABSL_GUARDED_BY(mutex) = 0;        // number of the last step taken
  bool resting ABSL_GUARDED_BY(mutex) = false;
  std::vector<std::deque<Frame>> inbox ABSL_GUARDED_BY(mutex);  // rows, by sender
  std::vector<bool> leaving ABSL_GUARDED_BY(mutex);             // rank 0's
  bool dissolved ABSL_GUARDED_BY(mutex) = false;
  bool closing ABSL_GUARDED_BY(mutex) = false;

  Mutex callbacks;  // held while one runs
  std::function<void()> on_step ABSL_GUARDED_BY(callbacks);
  std::function<absl::Status()> health ABSL_GUARDED_BY(callbacks);

  uint64_t exchanges = 0;  // engine thread
  const int stop;          // wakes the control thread for its end
  std::thread control;     // last: it uses everything above
};

ExpertGroup::Impl::~Impl() {
  {
    MutexLock lock(mutex);
    closing = true;
  }
  const uint64_t one = 1;
  BATON_CHECK(write(stop, &one, sizeof(one)) == sizeof(one));
  control.join();
  close(stop);
}

// --- Sending

void ExpertGroup::Impl::Send(Peer& peer, Frame frame, std::span<const std::byte> payload) {
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

void ExpertGroup::Impl::Broadcast(const Frame& frame, int except) {
  for (const auto& peer : peers) {
    if (peer->rank != except) Send(*peer, frame, frame.payload);
  }
}

// --- Steps

void ExpertGroup::Impl::Speak(uint64_t after, const Wish& wish) {
  if (leads()) return Said(0, after, wish);
  const std::vector<std::byte> payload = EncodePass(wish.kind, std::span(&wish.rows, 1));
  Send(Way(0), {.type = FrameType::kWish, .from = options.rank, .number = after}, payload);
}

Step ExpertGroup::Impl::Take() {
  Step step = *std::exchange(next, std::nullopt);
  taken = step.number;
  resting = false;
  return step;
}

void ExpertGroup::Impl::Said(int rank, uint64_t after, const Wish& wish) {
  {
    MutexLock lock(mutex);
    board.Say(rank, after, wish);
  }
  Decide();
}

void ExpertGroup::Impl::Decide() {
  std::optional<Step> step;
  {
    MutexLock lock(mutex);
    step = board.Decide();
    if (!step) return;
    decided_at = Clock::now();
  }
  // Nobody has spoken since, so that no other step is decided before this one is sent.
  Broadcast({.type = FrameType::kStep,
             .number = step->number,
             .payload = EncodePass(step->kind, step->rows)});
  Begin(*step);
}

void ExpertGroup::Impl::Begin(const Step& step) {
  bool call = false;
  {
    MutexLock lock(mutex);
    next = step;
    call = resting;
    changed.NotifyAll();
  }
  if (!call) return;
  MutexLock lock(callbacks);
  if (on_step) on_step();
}

// --- Control thread

void ExpertGroup::Impl::Control() {
  std::vector<pollfd> polled;
  Clock::time_point next_tick = Clock::now();
  for (;;) {
    polled.assign(1, {.fd = stop, .events = POLLIN, .revents = 0});
    for (const auto& peer : peers) {
      polled.push_back({.fd = peer->gone ? -1 : peer->socket.fd(), .events = POLLIN, .revents = 0});
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next_tick - Clock::now());
    poll(polled.data(), polled.size(), static_cast<int>(std::max<int64_t>(left.count(), 0)));
    if (polled[0].revents != 0) return;
    for (size_t i = 0; i < peers.size(); ++i) {
      if (polled[i + 1].revents != 0) Read(*peers[i]);
    }
    if (Clock::now() >= next_tick) {
      Tick();
      next_tick = Clock::now() + kTick;
    }
    absl::Status ended;
    {
      MutexLock lock(mutex);
      ended = fault;
    }
    if (!ended.ok()) return options.on_fault(ended);
  }
}

void ExpertGroup::Impl::Read(Peer& peer) {
  std::byte bytes[1 << 16];
  const absl::StatusOr<size_t> count = peer.socket.Receive(bytes, Clock::now());
  absl::Status status = count.status();
  if (count.ok()) {
    peer.heard = Clock::now();
    peer.reader.Append(std::span(bytes).first(*count));
  }
  while (status.ok()) {
    absl::StatusOr<std::optional<Frame>> frame = peer.reader.Next();
    if (frame.ok() && !frame->has_value()) return;
    status = frame.ok() ? Handle(peer, **std::move(frame)) : frame.status();
  }
  if (absl::IsDeadlineExceeded(status)) return;
  peer.gone = true;
  Fail(absl::UnavailableError(absl::StrCat("rank ", peer.rank, " ", status.message())));
}

absl::Status ExpertGroup::Impl::Handle(Peer& peer, Frame frame) {
  switch (frame.type) {
    case FrameType::kPulse:
      break;
    case FrameType::kWish: {
      BATON_ASSIGN_OR_RETURN(const Step wish, DecodePass(frame.payload, 1));
      Said(peer.rank, frame.number, {.kind = wish.kind, .rows = wish.rows[0]});
      break;
    }
    case FrameType::kStep: {
      BATON_ASSIGN_OR_RETURN(Step step,
                             DecodePass(frame.payload, static_cast<size_t>(options.size)));
      step.number = frame.number;
      Begin(step);
      break;
    }
    case FrameType::kRows: {
      if (frame.to >= options.size || frame.from >= options.size) {
        return absl::InvalidArgumentError(absl::StrCat("sends rows to rank ", frame.to));
      }
      if (frame.to != options.rank) {
        const std::vector<std::byte> payload = std::move(frame.payload);
        Send(Way(frame.to),
             {.type = frame.type, .from = frame.from, .to = frame.to, .number = frame.number},
             payload);
        break;
      }
      MutexLock lock(mutex);
      inbox[static_cast<size_t>(frame.from)].push_back(std::move(frame));
      changed.NotifyAll();
      break;
    }
    case FrameType::kLeaving:
      Left(peer.rank);
      break;
    case FrameType::kDissolved:
      Dissolve();
      break;
    case FrameType::kFault:
      Fail(absl::UnavailableError(DecodeText(frame.payload)));
      break;
    default:
      return absl::InvalidArgumentError("says what belongs to another time");
  }
  return absl::OkStatus();
}

void ExpertGroup::Impl::Tick() {
  const Clock::time_point now = Clock::now();
  const FrameHeader pulse =
      EncodeHeader({.type = FrameType::kPulse, .from = options.rank}, /*payload_bytes=*/0);
  for (const auto& peer : peers) {
    if (peer->gone) continue;
    if (peer->sending.TryLock()) {  // else something is on its way, and says as much
      peer->socket.SendIfRoom(pulse);
      peer->sending.Unlock();
    }
    if (now - peer->heard > options.silence) {
      peer->gone = true;
      Fail(absl::UnavailableError(absl::StrCat("rank ", peer->rank, " says nothing any more")));
    }
  }
  if (leads()) {
    std::vector<int> busy;
    {
      MutexLock lock(mutex);
      if (board.decided() > 0 && now - decided_at > options.stall) busy = board.Busy();
    }
    if (!busy.empty()) {
      Fail(absl::UnavailableError(
          absl::StrCat("rank ", absl::StrJoin(busy, " and rank "), " is stuck in a step")));
    }
  }
  absl::Status healthy;
  {
    MutexLock lock(callbacks);
    if (health) healthy = health();
  }
  if (!healthy.ok()) {
    Fail(absl::UnavailableError(absl::StrCat("rank ", options.rank, ": ", healthy.message())));
  }
}

// --- The end

void ExpertGroup::Impl::Fail(const absl::Status& why) {
  {
    MutexLock lock(mutex);
    if (dissolved || closing || std::exchange(failing, true)) return;
  }
  // Rank 0 tells everybody, and everybody tells rank 0.
  const std::string text(why.message());
  const FrameHeader header =
      EncodeHeader({.type = FrameType::kFault, .from = options.rank}, text.size());
  for (const auto& peer : peers) {
    if (!peer->sending.TryLock()) continue;  // it hears of it by the closed connection
    if (peer->socket.Send(header).ok()) peer->socket.Send(EncodeText(text)).IgnoreError();
    peer->socket.EndSending();
    peer->sending.Unlock();
  }
  std::this_thread::sleep_for(kLastWords);
  MutexLock lock(mutex);
  fault = why;
  changed.NotifyAll();
}

void ExpertGroup::Impl::Left(int rank) {
  bool all = false;
  {
    MutexLock lock(mutex);
    leaving[static_cast<size_t>(rank)] = true;
    all = std::find(leaving.begin(), leaving.end(), false) == leaving.end();
  }
  if (!all) return;
  Broadcast({.type = FrameType::kDissolved});
  Dissolve();
}

void ExpertGroup::Impl::Dissolve() {
  MutexLock lock(mutex);
  dissolved = true;
  changed.NotifyAll();
}

// --- The rank's side

ExpertGroup::ExpertGroup(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ExpertGroup::~ExpertGroup() = default;

absl::StatusOr<std::unique_ptr<ExpertGroup>> ExpertGroup::Join(const ExpertGroupOptions& options) {
  BATON_ASSIGN_OR_RETURN(std::vector<Link> links, Meet({.size = options.size,
                                                        .rank = options.rank,
                                                        .address = options.address,
                                                        .facts = options.facts,
                                                        .timeout = options.join_timeout}));
  return std::unique_ptr<ExpertGroup>(
      new ExpertGroup(std::make_unique<Impl>(options, std::move(links))));
}

int ExpertGroup::size() const { return impl_->options.size; }
int ExpertGroup::rank() const { return impl_->options.rank; }

absl::StatusOr<Step> ExpertGroup::Agree(const Wish& wish) {
  Impl& group = *impl_;
  uint64_t after = 0;
  bool speak = false;
  {
    MutexLock lock(group.mutex);
    after = group.taken;
    speak = !group.next;  // else a step was decided while this rank rested
    group.resting = false;
  }
  if (speak) group.Speak(after, wish);
  MutexLock lock(group.mutex);
  while (!group.next && group.fault.ok()) group.changed.Wait(group.mutex);
  if (!group.fault.ok()) return group.fault;
  return group.Take();
}

void ExpertGroup::Rest() {
  Impl& group = *impl_;
  uint64_t after = 0;
  {
    MutexLock lock(group.mutex);
    if (group.next || std::exchange(group.resting, true)) return;
    after = group.taken;
  }
  group.Speak(after, {.rows = Wish::kResting});
}

void ExpertGroup::OnStep(std::function<void()> on_step) {
  MutexLock lock(impl_->callbacks);
  impl_->on_step = std::move(on_step);
}

std::optional<Step> ExpertGroup::TakeCall() {
  MutexLock lock(impl_->mutex);
  if (!impl_->next) return std::nullopt;
  return impl_->Take();
}

absl::Status ExpertGroup::Exchange(std::span<const std::span<const std::byte>> to,
                                   std::span<const std::span<std::byte>> from) {
  Impl& group = *impl_;
  const uint64_t number = ++group.exchanges;
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    group.Send(group.Way(r), {.type = FrameType::kRows, .from = rank(), .to = r, .number = number},
               to[static_cast<size_t>(r)]);
  }
  for (size_t r = 0; r < to.size(); ++r) {
    Frame frame;
    if (static_cast<int>(r) == rank()) {
      frame.payload.assign(to[r].begin(), to[r].end());
    } else {
      MutexLock lock(group.mutex);
      std::deque<Frame>& arrived = group.inbox[r];
      while (arrived.empty() && group.fault.ok()) group.changed.Wait(group.mutex);
      if (!group.fault.ok()) return group.fault;
      frame = std::move(arrived.front());
      arrived.pop_front();
      BATON_CHECK(frame.number == number) << "rank " << r << " is out of step";
    }
    BATON_CHECK(frame.payload.size() == from[r].size())
        << frame.payload.size() << " bytes from rank " << r << ", not " << from[r].size();
    std::copy(frame.payload.begin(), frame.payload.end(), from[r].begin());
  }
  return absl::OkStatus();
}

bool ExpertGroup::Leave(std::chrono::nanoseconds timeout) {
  Impl& group = *impl_;
  if (group.leads()) {
    group.Left(0);
  } else {
    group.Send(group.Way(0), {.type = FrameType::kLeaving, .from = rank()}, {});
  }
  const Clock::time_point deadline = Clock::now() + timeout;
  MutexLock lock(group.mutex);
  while (!group.dissolved && group.fault.ok()) {
    const auto left = deadline - Clock::now();
    if (left <= left.zero() || !group.changed.WaitFor(group.mutex, left)) break;
  }
  return group.dissolved;
}

void ExpertGroup::Watch(std::function<absl::Status()> health) {
  MutexLock lock(impl_->callbacks);
  impl_->health = std::move(health);
}

}  // namespace baton::engine
