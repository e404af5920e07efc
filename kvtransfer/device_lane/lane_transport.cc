#include "kvtransfer/device_lane/lane_transport.h"

#include <deque>
#include <map>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "kvtransfer/device_lane/lane_probe.h"
#include "kvtransfer/device_lane/lane_sender.h"

namespace baton::kvtransfer {
namespace {

constexpr std::chrono::microseconds kPollInterval{20};

// The lane to one endpoint.
class Lane {
 public:
  Lane(std::unique_ptr<LaneChannel> channel, Fabric& fabric, const StagingMemory& own,
       const Clock& clock)
      : channel_(std::move(channel)),
        sender_(
            {.patience = fabric.patience()}, fabric.SenderEnd(own),
            [this](const LaneMessage& message) { Send(message); }, clock) {}

  void Post(uint64_t post, std::span<const std::byte> frame) {
    ++outstanding_;
    sender_.Post(post, frame);
  }
  void Cancel(uint64_t post) { sender_.Cancel(post); }

  std::vector<Completion> Poll() {
    ReadMessages();
    if (!broken_.ok()) sender_.Close(broken_);
    std::vector<Completion> completions = sender_.Poll();
    outstanding_ -= completions.size();
    return completions;
  }
  size_t outstanding() const { return outstanding_; }
  bool broken() const { return !broken_.ok(); }

 private:
  void Send(const LaneMessage& message) {
    if (absl::Status sent = channel_->Send(message); !sent.ok() && broken_.ok()) broken_ = sent;
  }

  void ReadMessages() {
    while (broken_.ok()) {
      auto message = channel_->Receive();
      if (!message.ok()) {
        broken_ = message.status();
      } else if (!message->has_value()) {
        return;
      } else if (const auto* said = std::get_if<LaneMessage>(&**message)) {
        sender_.OnMessage(*said);
      } else {
        broken_ = absl::UnavailableError("a Hello came from a receiver");
      }
    }
  }

  absl::Status broken_;  // before the sender, which says something at once
  const std::unique_ptr<LaneChannel> channel_;
  LaneSender sender_;
  size_t outstanding_ = 0;
};

class LaneTransport final : public Transport {
 public:
  LaneTransport(Fabric* fabric, ConnectLane connect, const LaneTransportOptions& options,
                StagingMemory memory, const Clock& clock)
      : fabric_(*fabric),
        connect_(std::move(connect)),
        options_(options),
        clock_(clock),
        memory_(std::move(memory)),
        mover_(fabric->NewMover()),
        capabilities_{.name = fabric->name(),
                      .max_frame_bytes = options.group_bytes,
                      .max_frames_in_flight = options.peer_groups,
                      .poll_interval = kPollInterval,
                      .mover = mover_.get(),
                      .max_regions = options.groups} {
    for (size_t group = options.groups; group > 0; --group) free_.push_back(group - 1);
  }
  ~LaneTransport() override {
    BATON_CHECK(free_.size() == options_.groups) << "regions were not released";
  }

  const TransportCapabilities& capabilities() const override { return capabilities_; }
  void SetWakeup(std::function<void()>) override {}  // it is polled

  absl::StatusOr<Region> Register(size_t bytes) override {
    BATON_CHECK(bytes <= options_.group_bytes) << bytes;
    if (free_.empty()) {
      return absl::ResourceExhaustedError(
          absl::StrCat("all ", options_.groups, " groups of staging memory are in use"));
    }
    const size_t group = free_.back();
    free_.pop_back();
    return Region{group + 1, memory_.bytes.subspan(group * options_.group_bytes, bytes)};
  }
  void Release(RegionId region) override { free_.push_back(region - 1); }

  void Post(const PostRequest& request) override {
    waiting_.push_back({request.post, std::string(request.endpoint), request.frame});
    StartWaiting();
  }

  std::vector<Completion> Poll() override {
    for (auto it = lanes_.begin(); it != lanes_.end();) {
      for (Completion& completion : it->second.lane->Poll()) {
        lane_of_.erase(completion.post);
        done_.push_back(std::move(completion));
      }
      // One that broke just now has completions left for the next Poll.
      const bool over = it->second.lane->broken() && it->second.lane->outstanding() == 0;
      it = over ? lanes_.erase(it) : std::next(it);
    }
    StartWaiting();
    return std::exchange(done_, {});
  }

  void Cancel(uint64_t post) override {
    if (const auto it = lane_of_.find(post); it != lane_of_.end()) {
      it->second->Cancel(post);
    } else if (std::erase_if(waiting_, [post](const Waiting& w) { return w.post == post; }) > 0) {
      done_.push_back({.post = post, .status = absl::CancelledError("cancelled")});
    }
  }

 private:
  struct Waiting {
    uint64_t post;
    std::string endpoint;
    std::span<const std::byte> frame;
  };
  struct Kept {
    std::unique_ptr<Lane> lane;
    uint64_t last_use = 0;
  };

  void StartWaiting() {
    std::deque<Waiting> still;
    for (Waiting& waiting : std::exchange(waiting_, {})) {
      absl::StatusOr<Lane*> lane = LaneTo(waiting.endpoint);
      if (!lane.ok()) {
        done_.push_back({.post = waiting.post, .status = lane.status()});
      } else if (*lane == nullptr) {
        still.push_back(std::move(waiting));
      } else {
        lane_of_[waiting.post] = *lane;
        (*lane)->Post(waiting.post, waiting.frame);
      }
    }
    waiting_ = std::move(still);
  }

  // Null while all lanes are busy.
  absl::StatusOr<Lane*> LaneTo(const std::string& endpoint) {
    const auto found = lanes_.find(endpoint);
    if (found != lanes_.end()) {
      found->second.last_use = ++uses_;
      return found->second.lane.get();
    }
    if (lanes_.size() >= options_.lanes && !DropIdle()) return nullptr;
    absl::StatusOr<std::unique_ptr<LaneChannel>> channel =
        connect_(fabric_.name(), endpoint, memory_);
    if (!channel.ok()) return channel.status();
    Kept& kept = lanes_[endpoint];
    kept = {std::make_unique<Lane>(*std::move(channel), fabric_, memory_, clock_), ++uses_};
    return kept.lane.get();
  }

  bool DropIdle() {
    auto oldest = lanes_.end();
    for (auto it = lanes_.begin(); it != lanes_.end(); ++it) {
      const bool idle = it->second.lane->outstanding() == 0;
      if (idle && (oldest == lanes_.end() || it->second.last_use < oldest->second.last_use)) {
        oldest = it;
      }
    }
    if (oldest == lanes_.end()) return false;
    lanes_.erase(oldest);
    return true;
  }

  Fabric& fabric_;
  const ConnectLane connect_;
  const LaneTransportOptions options_;
  const Clock& clock_;
  const StagingMemory memory_;
  const std::unique_ptr<RecordMover> mover_;
  const TransportCapabilities capabilities_;
  std::vector<size_t> free_;  // numbers of groups

  std::map<std::string, Kept> lanes_;  // by endpoint
  absl::flat_hash_map<uint64_t, Lane*> lane_of_;
  std::deque<Waiting> waiting_;
  uint64_t uses_ = 0;
  std::vector<Completion> done_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Transport>> MakeLaneTransport(Fabric* fabric, ConnectLane connect,
                                                             const LaneTransportOptions& options,
                                                             const Clock& clock) {
  absl::StatusOr<StagingMemory> memory = fabric->Allocate(options.groups * options.group_bytes);
  if (!memory.ok()) return memory.status();
  return std::make_unique<LaneTransport>(fabric, std::move(connect), options, *std::move(memory),
                                         clock);
}

absl::Status ProbeLane(Fabric& fabric, const ConnectLane& connect, const std::string& endpoint) {
  auto transport = MakeLaneTransport(
      &fabric, connect, {.group_bytes = kProbeBytes, .groups = 1, .peer_groups = 1, .lanes = 1});
  if (!transport.ok()) return transport.status();
  const absl::StatusOr<Region> region = (*transport)->Register(kProbeBytes);
  if (!region.ok()) return region.status();
  const Probe probe = NewProbe();
  (*transport)->capabilities().mover->Write(probe, region->memory.data());
  (*transport)
      ->Post({.post = 1, .endpoint = endpoint, .region = region->id, .frame = region->memory});
  absl::Status result = absl::UnavailableError(
      absl::StrCat(endpoint, " does not answer within ", Seconds(fabric.patience()), " s"));
  const Clock::TimePoint deadline = Clock::Real().Now() + fabric.patience();
  while (Clock::Real().Now() < deadline) {
    const std::vector<Completion> done = (*transport)->Poll();
    if (!done.empty()) {
      result = !done[0].status.ok() ? done[0].status : CheckProbeAnswer(probe, done[0].detail);
      break;
    }
    std::this_thread::sleep_for(kPollInterval);
  }
  (*transport)->Release(region->id);
  return result;
}

}  // namespace baton::kvtransfer
