#include "kvtransfer/loopback/loopback.h"

#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/gate.h"
#include "common/mutex.h"
#include "kvtransfer/completion_queue.h"
#include "kvtransfer/host_regions.h"

namespace baton::kvtransfer {
namespace {

struct Route {
  explicit Route(Receiver* to) : receiver(to) {}
  Receiver* const receiver;
  Gate gate;  // those who call the receiver are inside
};

}  // namespace

struct LoopbackNetwork::Routes {
  Mutex mutex;
  absl::flat_hash_map<std::string, std::shared_ptr<Route>> by_endpoint ABSL_GUARDED_BY(mutex);

  std::shared_ptr<Route> Find(const std::string& endpoint) {
    MutexLock lock(mutex);
    const auto it = by_endpoint.find(endpoint);
    return it == by_endpoint.end() ? nullptr : it->second;
  }
};

namespace {

struct Delivery {
  uint64_t post = 0;
  std::string endpoint;
  std::span<const std::byte> frame;  // not touched unless kRunning
  enum { kWaiting, kRunning, kDone } state = kWaiting;
};

// What deliveries share with the transport; outlives it as long as an executor holds tasks.
class Outstanding {
 public:
  CompletionQueue& completions() { return completions_; }

  void Add(std::shared_ptr<Delivery> delivery) {
    MutexLock lock(mutex_);
    const bool added = deliveries_.try_emplace(delivery->post, delivery).second;
    BATON_CHECK(added) << "post " << delivery->post << " is outstanding";
  }

  // False when the delivery was cancelled.
  bool Begin(Delivery& delivery) {
    MutexLock lock(mutex_);
    if (delivery.state != Delivery::kWaiting) return false;
    delivery.state = Delivery::kRunning;
    return true;
  }

  void Complete(Delivery& delivery, Completion completion) {
    MutexLock lock(mutex_);
    CompleteLocked(delivery, std::move(completion));
  }

  void Cancel(uint64_t post) {
    MutexLock lock(mutex_);
    const auto it = deliveries_.find(post);
    if (it == deliveries_.end() || it->second->state != Delivery::kWaiting) return;
    const std::shared_ptr<Delivery> delivery = it->second;
    CompleteLocked(*delivery, {.post = post, .status = absl::CancelledError("cancelled")});
  }

  bool empty() {
    MutexLock lock(mutex_);
    return deliveries_.empty();
  }

 private:
  void CompleteLocked(Delivery& delivery, Completion completion)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    delivery.state = Delivery::kDone;
    deliveries_.erase(completion.post);
    completions_.Push(std::move(completion));
  }

  Mutex mutex_;
  absl::flat_hash_map<uint64_t, std::shared_ptr<Delivery>> deliveries_ ABSL_GUARDED_BY(mutex_);
  CompletionQueue completions_;
};

void Deliver(LoopbackNetwork::Routes& routes, Outstanding& outstanding, Delivery& delivery) {
  if (!outstanding.Begin(delivery)) return;
  Completion completion{.post = delivery.post};
  const std::shared_ptr<Route> route = routes.Find(delivery.endpoint);
  if (Gate::Pass pass = route == nullptr ? Gate::Pass() : route->gate.TryEnter()) {
    completion.verdict = route->receiver->OnFrame(delivery.frame, &completion.detail);
  } else {
    completion.status =
        absl::UnavailableError(absl::StrCat("nothing listens at ", delivery.endpoint));
  }
  outstanding.Complete(delivery, std::move(completion));
}

class LoopbackTransport final : public Transport {
 public:
  LoopbackTransport(Executor* deliveries, std::shared_ptr<LoopbackNetwork::Routes> routes)
      : deliveries_(deliveries), routes_(std::move(routes)) {}
  ~LoopbackTransport() override {
    BATON_CHECK(outstanding_->empty()) << "destroyed with posts outstanding";
    outstanding_->completions().SetWakeup(nullptr);
  }

  const TransportCapabilities& capabilities() const override { return capabilities_; }

  void SetWakeup(std::function<void()> wakeup) override {
    outstanding_->completions().SetWakeup(std::move(wakeup));
  }

  absl::StatusOr<Region> Register(size_t bytes) override { return regions_.Register(bytes); }
  void Release(RegionId region) override { regions_.Release(region); }

  void Post(const PostRequest& request) override {
    const std::span<std::byte> region = regions_.Memory(request.region);
    BATON_CHECK(request.frame.data() >= region.data() &&
                request.frame.data() + request.frame.size() <= region.data() + region.size())
        << "post " << request.post << " lies outside region " << request.region;
    auto delivery = std::make_shared<Delivery>(
        Delivery{request.post, std::string(request.endpoint), request.frame});
    outstanding_->Add(delivery);
    deliveries_->Run([routes = routes_, outstanding = outstanding_, delivery] {
      Deliver(*routes, *outstanding, *delivery);
    });
  }

  std::vector<Completion> Poll() override { return outstanding_->completions().Take(); }
  void Cancel(uint64_t post) override { outstanding_->Cancel(post); }

 private:
  const TransportCapabilities capabilities_{
      .name = "loopback", .max_frame_bytes = size_t{2} << 20, .max_frames_in_flight = 1 << 20};
  Executor* const deliveries_;
  const std::shared_ptr<LoopbackNetwork::Routes> routes_;
  const std::shared_ptr<Outstanding> outstanding_ = std::make_shared<Outstanding>();
  HostRegions regions_;
};

}  // namespace

LoopbackNetwork::LoopbackNetwork(Executor* deliveries)
    : deliveries_(deliveries), routes_(std::make_shared<Routes>()) {}

LoopbackNetwork::~LoopbackNetwork() = default;

absl::Status LoopbackNetwork::Attach(const std::string& endpoint, Receiver* receiver) {
  MutexLock lock(routes_->mutex);
  if (!routes_->by_endpoint.try_emplace(endpoint, std::make_shared<Route>(receiver)).second) {
    return absl::AlreadyExistsError(absl::StrCat("endpoint ", endpoint, " is taken"));
  }
  return absl::OkStatus();
}

void LoopbackNetwork::Detach(const std::string& endpoint) {
  std::shared_ptr<Route> route;
  {
    MutexLock lock(routes_->mutex);
    const auto it = routes_->by_endpoint.find(endpoint);
    if (it == routes_->by_endpoint.end()) return;
    route = std::move(it->second);
    routes_->by_endpoint.erase(it);
  }
  route->gate.Close();
  while (!route->gate.WaitEmpty(std::chrono::hours(1))) {
  }
}

std::unique_ptr<Transport> LoopbackNetwork::Connect() {
  return std::make_unique<LoopbackTransport>(deliveries_, routes_);
}

}  // namespace baton::kvtransfer
