#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/clock.h"
#include "kvtransfer/device_lane/device_link.h"
#include "kvtransfer/device_lane/issue_order.h"
#include "kvtransfer/device_lane/lane_generation.h"
#include "kvtransfer/device_lane/lane_messages.h"
#include "kvtransfer/device_lane/lane_sender.h"

// Role: the decode end of the lane from one prefill worker: grants staging memory, assigns the
// numbers, hands what has landed in staging to a receiver. Why and threading: as lane_sender.h.

namespace baton::kvtransfer {

// Staging memory of one device, for groups of all its lanes. One thread.
class StagingGroups {
 public:
  explicit StagingGroups(std::vector<std::span<std::byte>> groups) : free_(std::move(groups)) {}
  std::optional<std::span<std::byte>> Take();
  void Return(std::span<std::byte> group) { free_.push_back(group); }
  size_t free() const { return free_.size(); }

 private:
  std::vector<std::span<std::byte>> free_;
};

class LaneReceiver {
 public:
  // Judges and writes what has landed, as Receiver::OnFrame does.
  using OnGroup =
      std::function<FrameVerdict(std::span<const std::byte> frame, std::string* detail)>;

  LaneReceiver(const LaneOptions& options, DeviceLinkFactory factory, StagingGroups* staging,
               OnGroup on_group, std::function<void(LaneMessage)> send, const Clock& clock);
  // Groups that are on the device end with the link.
  ~LaneReceiver();

  void OnMessage(const LaneMessage& message);
  // Progress of the device, of time, and of staging memory that other lanes have returned.
  void Poll();
  void Close();

  uint64_t generation() const { return generation_.number(); }
  bool busy() const { return !granted_.empty(); }
  size_t waiting_offers() const { return offers_.size(); }

 private:
  struct Group {
    std::span<std::byte> staging;
    size_t bytes = 0;
  };

  void Handle(const LaneReset&);
  void Handle(const LaneOffer& offer);
  void Handle(const LaneCommit& commit);
  void Handle(const LaneDecline& decline);
  void Handle(const LaneLink& message);
  template <typename Other>
  void Handle(const Other&) {}  // not for this end
  void GrantWaiting();
  void IssueReady();
  void HandleDone();
  // `why` the present one ends is logged.
  void Reset(uint64_t generation, std::string_view why);

  const LaneOptions options_;
  StagingGroups* const staging_;
  const OnGroup on_group_;
  const Clock& clock_;

  LaneGeneration generation_;
  std::deque<LaneOffer> offers_;  // wait for staging memory
  uint64_t next_sequence_ = 1;
  std::map<uint64_t, Group> granted_;  // by number, until declined or done
  IssueOrder<uint64_t> order_;         // of numbers
  std::deque<uint64_t> issued_;        // numbers, not done
  uint64_t done_ = 0;                  // groups of this link
  Clock::TimePoint last_progress_;     // while anything is granted
};

}  // namespace baton::kvtransfer
