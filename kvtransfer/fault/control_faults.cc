#include "kvtransfer/fault/control_faults.h"

#include <algorithm>
#include <thread>
#include <vector>

#include "common/base/check.h"

namespace baton::kvtransfer {
namespace {

constexpr std::chrono::milliseconds kTick{1};

}  // namespace

struct ControlFaults::State {
  explicit State(PlaneFaults plane) : dice(std::move(plane)), timer([this] { Loop(); }) {}
  ~State() { BATON_CHECK(!timer.joinable()); }

  void Stop() {
    {
      MutexLock lock(mutex);
      stopping = true;
      waiting.clear();
    }
    wake.NotifyAll();
    timer.join();
  }

  // Looks after lanes in which something is held.
  void Loop() {
    while (true) {
      std::vector<std::shared_ptr<Queue>> due;
      {
        MutexLock lock(mutex);
        while (waiting.empty() && !stopping) wake.Wait(mutex);
        if (stopping) return;
        due.swap(waiting);
      }
      for (const std::shared_ptr<Queue>& queue : due) queue->Pump();
      std::this_thread::sleep_for(kTick);
    }
  }

  void LookAfter(std::shared_ptr<Queue> queue) {
    {
      MutexLock lock(mutex);
      if (stopping) return;
      waiting.push_back(std::move(queue));
    }
    wake.NotifyOne();
  }

  Mutex mutex;
  CondVar wake;
  FaultDice dice ABSL_GUARDED_BY(mutex);
  Clock::TimePoint stalled_until ABSL_GUARDED_BY(mutex);
  std::vector<std::shared_ptr<Queue>> waiting ABSL_GUARDED_BY(mutex);
  bool stopping ABSL_GUARDED_BY(mutex) = false;
  std::thread timer;
};

std::unique_ptr<ControlFaults> ControlFaults::Make(const PlaneFaults& plane) {
  return plane.active ? std::make_unique<ControlFaults>(plane) : nullptr;
}

ControlFaults::ControlFaults(PlaneFaults plane)
    : state_(std::make_shared<State>(std::move(plane))) {}

ControlFaults::~ControlFaults() { state_->Stop(); }

ControlFaults::Queue::Queue(std::shared_ptr<State> state, std::function<void(absl::Status)> cut)
    : state_(std::move(state)), cut_(std::move(cut)) {}

Fault ControlFaults::Queue::Roll(std::string_view message) {
  MutexLock lock(state_->mutex);
  return state_->dice.Next(message);
}

void ControlFaults::Queue::Pass(const Fault& fault, std::function<void()> deliver) {
  using Kind = Fault::Kind;
  if (fault.kind == Kind::kDrop) return;
  if (fault.kind == Kind::kCut) return Cut(absl::UnavailableError("cut by the fault plan"));
  if (fault.kind == Kind::kFail) return Cut(absl::InternalError("failed by the fault plan"));
  const Clock::TimePoint now = Clock::Real().Now();
  Item item{std::move(deliver), now, fault.kind == Kind::kReorder};
  if (fault.kind == Kind::kDelay || fault.kind == Kind::kReorder) item.due += fault.duration;
  if (fault.kind == Kind::kStall) {
    MutexLock lock(state_->mutex);
    state_->stalled_until = std::max(state_->stalled_until, now + fault.duration);
  }
  {
    MutexLock lock(mutex_);
    auto place = items_.end();
    if (!items_.empty() && items_.back().overtaken) {
      items_.back().overtaken = false;
      items_.back().due = now;
      place = std::prev(items_.end());
    }
    if (fault.kind == Kind::kDuplicate) place = items_.insert(place, item);
    items_.insert(place, std::move(item));
  }
  Pump();
}

void ControlFaults::Queue::Clear() {
  MutexLock lock(mutex_);
  items_.clear();
}

void ControlFaults::Queue::Pump() {
  while (true) {
    Clock::TimePoint stalled;
    {
      MutexLock lock(state_->mutex);
      stalled = state_->stalled_until;
    }
    Item item;
    {
      MutexLock lock(mutex_);
      if (delivering_ || items_.empty()) return;
      const Clock::TimePoint now = Clock::Real().Now();
      if (stalled > now || items_.front().due > now) break;
      item = std::move(items_.front());
      items_.pop_front();
      delivering_ = true;
    }
    item.deliver();
    MutexLock lock(mutex_);
    delivering_ = false;
  }
  state_->LookAfter(shared_from_this());
}

}  // namespace baton::kvtransfer
