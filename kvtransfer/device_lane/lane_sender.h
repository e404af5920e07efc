#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "common/clock.h"
#include "kvtransfer/device_lane/device_link.h"
#include "kvtransfer/device_lane/issue_order.h"
#include "kvtransfer/device_lane/lane_generation.h"
#include "kvtransfer/device_lane/lane_messages.h"
#include "kvtransfer/transport.h"

// Role: the prefill end of the lane to one decode worker: turns posts into groups on the device.
// Why: the order of groups is kept here, once, for every device transport.
// Threading: one thread. Nothing blocks; `send` is called from within and must not call back.

namespace baton::kvtransfer {

struct LaneOptions {
  // How long a number may stay undecided, a group unfinished, or a cancelled one in the way, before
  // the generation is given up.
  Clock::Duration patience = std::chrono::seconds(1);
};

class LaneSender {
 public:
  LaneSender(const LaneOptions& options, DeviceLinkFactory factory,
             std::function<void(LaneMessage)> send, const Clock& clock);

  // One group: a frame in staging memory, unchanged and alive until its completion.
  void Post(uint64_t post, std::span<const std::byte> staging);
  // Before its commit a post ends at once. Afterwards its group runs all the same, because the peer
  // counts on it; the post ends when it has, or when patience is over and the link is aborted.
  void Cancel(uint64_t post);
  void OnMessage(const LaneMessage& message);
  // Progress of the device and of time.
  std::vector<Completion> Poll();
  // The peer is gone: everything outstanding fails with `why`.
  void Close(absl::Status why);

  uint64_t generation() const { return generation_.number(); }

 private:
  struct Outstanding {
    std::span<const std::byte> staging;
    bool committed = false;
    bool cancelled = false;    // and committed
    bool ran = false;          // on this end
    Clock::TimePoint since{};  // committed or cancelled
  };

  void Handle(const LaneReset&);
  void Handle(const LaneGrant& grant);
  void Handle(const LaneAnswer& answer);
  void Handle(const LaneLink& message);
  template <typename Other>
  void Handle(const Other&) {}  // not for this end
  void IssueReady();
  void CountDone();
  void Reset(uint64_t generation, const absl::Status& why);
  void OfferWaiting();
  void Complete(uint64_t post, Completion completion);

  const LaneOptions options_;
  const Clock& clock_;

  LaneGeneration generation_;
  std::deque<uint64_t> unoffered_;  // posts
  uint64_t offered_ = 0;            // groups of this generation, as the two below
  uint64_t declined_ = 0;
  uint64_t done_ = 0;
  IssueOrder<uint64_t> order_;            // of posts
  std::map<uint64_t, uint64_t> post_of_;  // by number, committed and not answered
  std::deque<uint64_t> issued_;           // numbers, not done
  std::set<uint64_t> unanswered_;         // numbers, issued, of cancelled posts too
  std::map<uint64_t, Outstanding> posts_;
  std::vector<Completion> completions_;
};

}  // namespace baton::kvtransfer
