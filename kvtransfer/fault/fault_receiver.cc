#include "kvtransfer/fault/fault_receiver.h"

#include <thread>
#include <utility>
#include <vector>

#include "common/mutex.h"

namespace baton::kvtransfer {
namespace {

using Kind = Fault::Kind;

class FaultReceiver final : public Receiver {
 public:
  FaultReceiver(std::unique_ptr<Receiver> inner, PlaneFaults plane)
      : inner_(std::move(inner)), dice_(std::move(plane)) {}

  absl::Status Expect(LandingSpec spec) override { return inner_->Expect(std::move(spec)); }
  void Abort(const AttemptId& attempt, absl::Status why) override {
    inner_->Abort(attempt, std::move(why));
  }
  int64_t received_bytes(const AttemptId& attempt) const override {
    return inner_->received_bytes(attempt);
  }
  ReceiverStats stats() const override { return inner_->stats(); }

  FrameVerdict OnFrame(std::span<const std::byte> frame, std::string* detail) override {
    return Disturbed(
        frame, detail, [&] { return inner_->OnFrame(frame, detail); },
        [&](uint64_t bit) {
          std::vector<std::byte> copy(frame.begin(), frame.end());
          copy[bit / 8] ^= std::byte{1} << (bit % 8);
          return inner_->OnFrame(copy, detail);
        });
  }

  FrameVerdict OnDeviceFrame(std::span<const std::byte> staging, RecordMover& mover,
                             std::string* detail) override {
    const auto deliver = [&] { return inner_->OnDeviceFrame(staging, mover, detail); };
    return Disturbed(staging, detail, deliver, [&](uint64_t bit) {
      // The staging memory is this end's own copy.
      auto* const at = const_cast<std::byte*>(staging.data() + bit / 8);
      std::byte byte{};
      mover.Read(at, std::span(&byte, 1));
      byte ^= std::byte{1} << (bit % 8);
      mover.Write(std::span(&byte, 1), at);
      return deliver();
    });
  }

 private:
  // `deliver` passes the frame on, `corrupt` does so with that bit of it flipped.
  template <typename Deliver, typename Corrupt>
  FrameVerdict Disturbed(std::span<const std::byte> frame, std::string* detail,
                         const Deliver& deliver, const Corrupt& corrupt) {
    const Fault fault = Roll();
    switch (fault.kind) {
      case Kind::kDelay:
      case Kind::kStall:
        std::this_thread::sleep_for(fault.duration);
        break;
      case Kind::kDuplicate:
        deliver();
        break;
      case Kind::kFail:
        *detail = "failed by the fault plan";
        return FrameVerdict::kRejected;
      case Kind::kCorrupt:
        if (frame.empty()) break;
        return corrupt(fault.bit % (frame.size() * 8));
      default:
        break;
    }
    return deliver();
  }

  Fault Roll() {
    MutexLock lock(mutex_);
    return dice_.Next();
  }

  const std::unique_ptr<Receiver> inner_;
  Mutex mutex_;
  FaultDice dice_ ABSL_GUARDED_BY(mutex_);
};

bool HasOnlyOurs(const PlaneFaults& plane) {
  const FaultRates& rates = plane.rates;
  if (rates.drop + rates.drop_answer + rates.reorder + rates.cut > 0) return false;
  for (const NthFault& nth : plane.at) {
    if (nth.fault.kind == Kind::kDrop || nth.fault.kind == Kind::kDropAnswer ||
        nth.fault.kind == Kind::kReorder || nth.fault.kind == Kind::kCut) {
      return false;
    }
  }
  return true;
}

}  // namespace

absl::Status CheckReceiverFaults(const PlaneFaults& plane) {
  if (HasOnlyOurs(plane)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "frames: drop, drop-answer, reorder and cut are faults of a prefill worker, which sends "
      "them; a decode worker has delay, stall, corrupt, duplicate and fail");
}

std::unique_ptr<Receiver> WithFaults(std::unique_ptr<Receiver> receiver, const PlaneFaults& plane) {
  if (!plane.active) return receiver;
  return std::make_unique<FaultReceiver>(std::move(receiver), plane);
}

}  // namespace baton::kvtransfer
