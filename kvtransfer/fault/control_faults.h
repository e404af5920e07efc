#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "kvtransfer/fault/fault.h"

// Role: does to the messages of control streams what fault_transport.h does to frames.
// Why: a hand-off hangs on two planes; either may be late, gone or wrong while the other is well.
// Threading: thread-safe. Messages of a lane are delivered one at a time, by whoever passes them
// or, when they were held, by a thread of the ControlFaults.

namespace baton::kvtransfer {

// All streams of a process: they share the dice, and a stall stalls them all.
class ControlFaults {
 public:
  // Null for an inactive plane.
  static std::unique_ptr<ControlFaults> Make(const PlaneFaults& plane);
  explicit ControlFaults(PlaneFaults plane);
  // Held messages are dropped. No lane is used any more.
  ~ControlFaults();

  // One direction of one stream; copies are the same lane. Without faults (nullptr) everything
  // passes straight through.
  template <typename Message>
  class Lane;

 private:
  struct State;
  class Queue;
  std::shared_ptr<State> state_;
};

// The order of one lane, whatever the messages are.
class ControlFaults::Queue : public std::enable_shared_from_this<Queue> {
 public:
  Queue(std::shared_ptr<State> state, std::function<void(absl::Status)> cut);

  Fault Roll(std::string_view message);
  // Runs `deliver` in its turn, now or after what the fault says.
  void Pass(const Fault& fault, std::function<void()> deliver);
  // Drops what is held.
  void Clear();
  void Cut(absl::Status why) { cut_(std::move(why)); }
  // Delivers what is due.
  void Pump();

 private:
  struct Item {
    std::function<void()> deliver;
    Clock::TimePoint due;
    bool overtaken = false;  // by the next that comes
  };

  const std::shared_ptr<State> state_;
  const std::function<void(absl::Status)> cut_;
  Mutex mutex_;
  std::deque<Item> items_ ABSL_GUARDED_BY(mutex_);
  bool delivering_ ABSL_GUARDED_BY(mutex_) = false;
};

template <typename Message>
class ControlFaults::Lane {
 public:
  using Deliver = std::function<void(Message)>;

  // `cut` ends the stream with a status.
  Lane(const ControlFaults* faults, Deliver deliver, std::function<void(absl::Status)> cut)
      : deliver_(std::move(deliver)),
        queue_(faults == nullptr ? nullptr
                                 : std::make_shared<Queue>(faults->state_, std::move(cut))) {}

  void Pass(Message message) const {
    if (queue_ == nullptr) return deliver_(std::move(message));
    const Fault fault = queue_->Roll(KindOf(message));
    if (fault.kind == Fault::Kind::kCorrupt && !Damage(fault.bit, &message)) {
      return queue_->Cut(absl::InternalError("a message cannot be parsed"));
    }
    queue_->Pass(fault, [deliver = deliver_, message = std::move(message)] { deliver(message); });
  }

  // What comes after every message so far, with no fault of its own.
  void Follow(std::function<void()> deliver) const {
    if (queue_ == nullptr) return deliver();
    queue_->Pass(Fault{}, std::move(deliver));
  }
  // The stream is gone, and what is held with it; `deliver` is the last.
  void End(std::function<void()> deliver) const {
    if (queue_ != nullptr) queue_->Clear();
    Follow(std::move(deliver));
  }

 private:
  // The name of the field that is set: every message of these streams is a oneof.
  static std::string KindOf(const Message& message) {
    const auto* field = message.GetReflection()->GetOneofFieldDescriptor(
        message, message.GetDescriptor()->oneof_decl(0));
    return field == nullptr ? "" : std::string(field->name());
  }

  static bool Damage(uint64_t bit, Message* message) {
    std::string bytes = message->SerializeAsString();
    if (bytes.empty()) return true;
    bit %= bytes.size() * 8;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
    return message->ParseFromString(bytes);
  }

  const Deliver deliver_;
  const std::shared_ptr<Queue> queue_;  // null without faults
};

}  // namespace baton::kvtransfer
