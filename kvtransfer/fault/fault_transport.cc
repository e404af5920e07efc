#include "kvtransfer/fault/fault_transport.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "common/base/check.h"

namespace baton::kvtransfer {
namespace {

using Kind = Fault::Kind;

class FaultTransport final : public Transport {
 public:
  FaultTransport(std::unique_ptr<Transport> inner, FaultPlan plan, const Clock& clock)
      : inner_(std::move(inner)),
        plan_(std::move(plan)),
        clock_(clock),
        capabilities_(inner_->capabilities()) {
    capabilities_.max_frames_in_flight /= 2;  // each may be delivered twice
    capabilities_.max_regions /= 2;           // or have a corrupt copy
    if (capabilities_.poll_interval.count() == 0) {
      capabilities_.poll_interval = std::chrono::milliseconds(1);
    }
  }

  const TransportCapabilities& capabilities() const override { return capabilities_; }

  void SetWakeup(std::function<void()> wakeup) override {
    wakeup_ = wakeup;
    inner_->SetWakeup(std::move(wakeup));
  }
  absl::StatusOr<Region> Register(size_t bytes) override { return inner_->Register(bytes); }
  void Release(RegionId region) override { inner_->Release(region); }

  void Post(const PostRequest& request) override;
  std::vector<Completion> Poll() override;
  void Cancel(uint64_t post) override;

 private:
  struct Pending {
    PostRequest request;  // its endpoint refers to `endpoint`
    std::string endpoint;
    Fault fault;
    bool held = false;
    Clock::TimePoint release;           // when held
    std::vector<uint64_t> inner_posts;  // outstanding below
    RegionId copy = 0;                  // region of a corrupted frame's copy
    bool answered = false;              // `answer` is the outcome once nothing is outstanding below
    Completion answer;
  };
  using PendingMap = std::map<uint64_t, Pending>;  // ordered: the same run every time

  // `pending` may have ended when this returns.
  void Forward(Pending& pending);
  void ForwardOnce(Pending& pending, RegionId region, std::span<const std::byte> frame);
  void ForwardCorrupt(Pending& pending);
  void ReleaseHeld();
  void Cut(const std::string& endpoint);
  void OnInner(Completion completion);
  // The outcome is `status` as soon as nothing is outstanding below.
  void EndWith(Pending& pending, absl::Status status);
  void CompleteIfQuiet(uint64_t post);

  const std::unique_ptr<Transport> inner_;
  const FaultPlan plan_;
  const Clock& clock_;
  TransportCapabilities capabilities_;
  std::function<void()> wakeup_;
  PendingMap pending_;
  absl::flat_hash_map<uint64_t, uint64_t> outer_of_inner_;
  std::map<std::string, Clock::TimePoint> stalled_until_;
  uint64_t next_inner_ = 1;
  std::vector<Completion> done_;
};

void FaultTransport::Post(const PostRequest& request) {
  auto [it, added] = pending_.try_emplace(request.post);
  BATON_CHECK(added) << "post " << request.post << " is outstanding";
  Pending& pending = it->second;
  pending.endpoint = std::string(request.endpoint);
  pending.request = request;
  pending.request.endpoint = pending.endpoint;
  pending.fault = plan_(request);
  const Clock::TimePoint now = clock_.Now();
  Clock::TimePoint& stalled = stalled_until_[pending.endpoint];
  switch (pending.fault.kind) {
    case Kind::kDrop:
      return;
    case Kind::kCut:
      return Cut(pending.endpoint);
    case Kind::kFail:
      return EndWith(pending, absl::UnavailableError("failed by the fault plan"));
    case Kind::kStall:
      stalled = std::max(stalled, now + pending.fault.duration);
      break;
    case Kind::kDelay:
    case Kind::kReorder:
      pending.held = true;
      pending.release = now + pending.fault.duration;
      break;
    default:
      break;
  }
  if (stalled > now) {
    pending.held = true;
    pending.release = std::max(pending.release, stalled);
  }
  if (pending.held) return;
  Forward(pending);
  for (auto& [post, other] : pending_) {  // what waited for a frame to overtake it
    if (other.held && other.fault.kind == Kind::kReorder && other.endpoint == request.endpoint) {
      other.held = false;
      Forward(other);
    }
  }
}

void FaultTransport::Forward(Pending& pending) {
  if (pending.fault.kind == Kind::kCorrupt) return ForwardCorrupt(pending);
  ForwardOnce(pending, pending.request.region, pending.request.frame);
  if (pending.fault.kind == Kind::kDuplicate) {
    ForwardOnce(pending, pending.request.region, pending.request.frame);
  }
}

void FaultTransport::ForwardOnce(Pending& pending, RegionId region,
                                 std::span<const std::byte> frame) {
  const uint64_t inner = next_inner_++;
  pending.inner_posts.push_back(inner);
  outer_of_inner_[inner] = pending.request.post;
  inner_->Post({.post = inner, .endpoint = pending.endpoint, .region = region, .frame = frame});
}

void FaultTransport::ForwardCorrupt(Pending& pending) {
  const std::span<const std::byte> frame = pending.request.frame;
  const absl::StatusOr<Region> copy = inner_->Register(frame.size());
  if (!copy.ok()) return EndWith(pending, copy.status());
  pending.copy = copy->id;
  std::vector<std::byte> bytes(frame.size());
  RecordMover* const mover = capabilities_.mover;
  if (mover != nullptr) {
    mover->Read(frame.data(), bytes);
  } else {
    std::copy(frame.begin(), frame.end(), bytes.begin());
  }
  const uint64_t bit = pending.fault.bit % (frame.size() * 8);
  bytes[bit / 8] ^= std::byte{1} << (bit % 8);
  if (mover != nullptr) {
    mover->Write(bytes, copy->memory.data());
  } else {
    std::copy(bytes.begin(), bytes.end(), copy->memory.begin());
  }
  ForwardOnce(pending, copy->id, copy->memory);
}

std::vector<Completion> FaultTransport::Poll() {
  ReleaseHeld();
  for (Completion& completion : inner_->Poll()) OnInner(std::move(completion));
  return std::exchange(done_, {});
}

void FaultTransport::ReleaseHeld() {
  const Clock::TimePoint now = clock_.Now();
  std::vector<uint64_t> due;
  for (const auto& [post, pending] : pending_) {
    if (pending.held && pending.release <= now) due.push_back(post);
  }
  for (const uint64_t post : due) {
    Pending& pending = pending_.at(post);
    pending.held = false;
    Forward(pending);
  }
}

void FaultTransport::OnInner(Completion completion) {
  const auto found = outer_of_inner_.find(completion.post);
  BATON_CHECK(found != outer_of_inner_.end()) << completion.post;
  const uint64_t post = found->second;
  outer_of_inner_.erase(found);
  Pending& pending = pending_.at(post);
  std::erase(pending.inner_posts, completion.post);
  if (pending.fault.kind != Kind::kDropAnswer && !pending.answered) {
    pending.answered = true;
    pending.answer = std::move(completion);
  }
  CompleteIfQuiet(post);
}

void FaultTransport::Cut(const std::string& endpoint) {
  std::vector<uint64_t> posts;
  for (const auto& [post, pending] : pending_) {
    if (pending.endpoint == endpoint) posts.push_back(post);
  }
  for (const uint64_t post : posts) {
    EndWith(pending_.at(post), absl::UnavailableError("connection cut by the fault plan"));
  }
}

void FaultTransport::Cancel(uint64_t post) {
  const auto it = pending_.find(post);
  if (it == pending_.end()) return;
  EndWith(it->second, absl::CancelledError("cancelled"));
}

void FaultTransport::EndWith(Pending& pending, absl::Status status) {
  const uint64_t post = pending.request.post;
  pending.held = false;
  if (!pending.answered) {
    pending.answered = true;
    pending.answer = {.status = std::move(status)};
  }
  for (const uint64_t inner : pending.inner_posts) inner_->Cancel(inner);
  CompleteIfQuiet(post);
}

void FaultTransport::CompleteIfQuiet(uint64_t post) {
  const auto it = pending_.find(post);
  Pending& pending = it->second;
  if (!pending.answered || !pending.inner_posts.empty()) return;
  if (pending.copy != 0) inner_->Release(pending.copy);
  pending.answer.post = post;
  done_.push_back(std::move(pending.answer));
  pending_.erase(it);
  if (wakeup_ != nullptr) wakeup_();
}

}  // namespace

FaultPlan PlannedFaults(PlaneFaults plane) {
  return [dice = FaultDice(std::move(plane))](const PostRequest&) mutable { return dice.Next(); };
}

FaultPlan RandomFaults(const FaultRates& rates, uint64_t seed) {
  return PlannedFaults({.rates = rates, .seed = seed});
}

std::unique_ptr<Transport> WithFaults(std::unique_ptr<Transport> transport, FaultPlan plan,
                                      const Clock& clock) {
  return std::make_unique<FaultTransport>(std::move(transport), std::move(plan), clock);
}

}  // namespace baton::kvtransfer
