#include "engine/parallel/expert_group.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/mutex.h"
#include "common/status_macros.h"
#include "engine/parallel/control.h"
#include "engine/parallel/rendezvous.h"
#include "spdlog/spdlog.h"

namespace baton::engine {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

void EndProcess(const absl::Status& why) {
  spdlog::error("the expert-parallel group has ended: {}", std::string(why.message()));
  spdlog::default_logger()->flush();
  std::_Exit(EXIT_FAILURE);
}

struct ExpertGroup::Impl {
  Impl(const ExpertGroupOptions& options, std::vector<Link> links, Wakeup wakeup)
      : options(options),
        inbox(static_cast<size_t>(options.size)),
        board(options.size),
        leaving(static_cast<size_t>(options.size)),
        control(options.rank, std::move(links), std::move(wakeup), options.silence,
                {.on_frame = [this](int sender,
                                    Frame frame) { return Handle(sender, std::move(frame)); },
                 .on_tick = [this] { return CheckHealth(); },
                 .on_fault = [this](const absl::Status& why) { End(why); }}) {
    control.Start();
  }

  bool leads() const { return options.rank == 0; }

  // --- Control thread.
  absl::Status Handle(int sender, Frame frame);
  absl::Status CheckHealth();
  void End(const absl::Status& why);

  // --- Any thread.
  void Speak(uint64_t after, const Wish& wish);
  void Begin(const Step& step);
  // Ends the group for what a rank did.
  absl::Status Blame(size_t rank, const std::string& what) {
    const absl::Status why = absl::InternalError(absl::StrCat("rank ", rank, " ", what));
    control.Fail(why);
    return why;
  }
  Step Take() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void Dissolve();
  // Rank 0's.
  void Hear(int rank, uint64_t after, const Wish& wish);
  void HearLeaving(int rank);

  const ExpertGroupOptions options;

  Mutex mutex;
  CondVar changed;
  std::optional<Step> next ABSL_GUARDED_BY(mutex);  // decided, not taken
  uint64_t taken ABSL_GUARDED_BY(mutex) = 0;        // number of the last step taken
  bool resting ABSL_GUARDED_BY(mutex) = false;
  std::vector<std::deque<Frame>> inbox ABSL_GUARDED_BY(mutex);  // rows, by sender
  bool dissolved ABSL_GUARDED_BY(mutex) = false;
  absl::Status fault ABSL_GUARDED_BY(mutex);
  // Rank 0's.
  StepBoard board ABSL_GUARDED_BY(mutex);
  Clock::time_point decided_at ABSL_GUARDED_BY(mutex) = Clock::now();
  std::vector<bool> leaving ABSL_GUARDED_BY(mutex);

  Mutex callbacks;  // held while one runs
  std::function<void()> on_step ABSL_GUARDED_BY(callbacks);
  std::function<absl::Status()> health ABSL_GUARDED_BY(callbacks);

  uint64_t exchanges = 0;  // engine thread
  Control control;         // last: its thread uses everything above
};

// --- Steps

void ExpertGroup::Impl::Speak(uint64_t after, const Wish& wish) {
  if (leads()) return Hear(0, after, wish);
  control.Send(0, {.type = FrameType::kWish, .number = after},
               EncodePass({.kind = wish.kind,
                           .rows = {wish.rows},
                           .sequence_rows = wish.sequence_rows,
                           .positions = wish.positions}));
}

void ExpertGroup::Impl::Hear(int rank, uint64_t after, const Wish& wish) {
  std::optional<Step> step;
  {
    MutexLock lock(mutex);
    board.Say(rank, after, wish);
    step = board.Decide();
    if (!step) return;
    decided_at = Clock::now();
  }
  // Nobody has spoken since, so that no other step is decided before this one is sent.
  control.SendToAll(
      {.type = FrameType::kStep, .number = step->number, .payload = EncodePass(*step)});
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

Step ExpertGroup::Impl::Take() {
  Step step = *std::exchange(next, std::nullopt);
  taken = step.number;
  resting = false;
  return step;
}

// --- Control thread

absl::Status ExpertGroup::Impl::Handle(int sender, Frame frame) {
  // Rank 0 is told what others want and tells what is done. Rows come from everybody.
  const bool to_leader = frame.type == FrameType::kWish || frame.type == FrameType::kLeaving;
  if (frame.type != FrameType::kRows && (to_leader ? !leads() : leads() || frame.from != 0)) {
    return absl::InvalidArgumentError("says what is not for it to say");
  }
  switch (frame.type) {
    case FrameType::kWish: {
      BATON_ASSIGN_OR_RETURN(const Step wish, DecodePass(frame.payload, 1, options.max_positions));
      Hear(sender, frame.number,
           {.kind = wish.kind,
            .rows = wish.rows[0],
            .sequence_rows = wish.sequence_rows,
            .positions = wish.positions});
      return absl::OkStatus();
    }
    case FrameType::kStep: {
      BATON_ASSIGN_OR_RETURN(Step step, DecodePass(frame.payload, static_cast<size_t>(options.size),
                                                   options.max_positions));
      if (std::count(step.rows.begin(), step.rows.end(), Wish::kResting) > 0) {
        return absl::InvalidArgumentError("lets a rank at rest compute");
      }
      step.number = frame.number;
      Begin(step);
      return absl::OkStatus();
    }
    case FrameType::kRows: {
      MutexLock lock(mutex);
      if (frame.from >= options.size) break;
      inbox[static_cast<size_t>(frame.from)].push_back(std::move(frame));
      changed.NotifyAll();
      return absl::OkStatus();
    }
    case FrameType::kLeaving:
      HearLeaving(sender);
      return absl::OkStatus();
    case FrameType::kDissolved:
      Dissolve();
      return absl::OkStatus();
    default:
      break;
  }
  return absl::InvalidArgumentError("says what cannot be meant");
}

absl::Status ExpertGroup::Impl::CheckHealth() {
  {
    MutexLock lock(callbacks);
    const absl::Status healthy = health ? health() : absl::OkStatus();
    BATON_RETURN_IF_ERROR(healthy) << "rank " << options.rank;
  }
  MutexLock lock(mutex);
  const bool starting = board.decided() == 0;
  const auto patience = starting ? options.start : options.stall;
  if (!leads() || Clock::now() - decided_at < patience) return absl::OkStatus();
  const std::vector<int> busy = board.Busy();
  if (busy.empty()) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("rank ", absl::StrJoin(busy, " and rank "),
                   starting ? " has not come to the first step" : " is stuck in a step"));
}

void ExpertGroup::Impl::End(const absl::Status& why) {
  {
    MutexLock lock(mutex);
    fault = why;
    changed.NotifyAll();
  }
  options.on_fault(why);
}

// --- Leaving

void ExpertGroup::Impl::HearLeaving(int rank) {
  {
    MutexLock lock(mutex);
    leaving[static_cast<size_t>(rank)] = true;
    if (std::find(leaving.begin(), leaving.end(), false) != leaving.end()) return;
  }
  control.Relax();  // before the first of them goes
  control.SendToAll({.type = FrameType::kDissolved});
  Dissolve();
}

void ExpertGroup::Impl::Dissolve() {
  control.Relax();
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
  BATON_ASSIGN_OR_RETURN(Wakeup wakeup, Wakeup::Create());
  return std::unique_ptr<ExpertGroup>(
      new ExpertGroup(std::make_unique<Impl>(options, std::move(links), std::move(wakeup))));
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
  const auto mine = static_cast<size_t>(rank());
  if (!Grants(*group.next, mine, wish)) {
    return group.Blame(0, absl::StrCat("asks for a pass of ", group.next->rows[mine],
                                       " rows, not for the one of ", wish.rows, " wanted"));
  }
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
    group.control.Send(r, {.type = FrameType::kRows, .number = number}, to[static_cast<size_t>(r)]);
  }
  const auto own = static_cast<size_t>(rank());
  BATON_CHECK(to[own].size() == from[own].size()) << to[own].size() << ", " << from[own].size();
  std::copy(to[own].begin(), to[own].end(), from[own].begin());
  for (size_t r = 0; r < to.size(); ++r) {
    if (r == own) continue;
    Frame frame;
    {
      MutexLock lock(group.mutex);
      std::deque<Frame>& arrived = group.inbox[r];
      while (arrived.empty() && group.fault.ok()) group.changed.Wait(group.mutex);
      if (!group.fault.ok()) return group.fault;
      frame = std::move(arrived.front());
      arrived.pop_front();
      if (frame.number != number) {
        return group.Blame(
            r, absl::StrCat("is out of step: its exchange ", frame.number, " at ", number));
      }
    }
    if (frame.payload.size() != from[r].size()) {
      return group.Blame(
          r, absl::StrCat("sends ", frame.payload.size(), " bytes, not ", from[r].size()));
    }
    std::copy(frame.payload.begin(), frame.payload.end(), from[r].begin());
  }
  return absl::OkStatus();
}

bool ExpertGroup::Leave(std::chrono::nanoseconds timeout) {
  Impl& group = *impl_;
  if (group.leads()) {
    group.HearLeaving(0);
  } else {
    group.control.Send(0, {.type = FrameType::kLeaving}, {});
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
