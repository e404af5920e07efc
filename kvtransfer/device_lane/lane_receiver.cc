#include "kvtransfer/device_lane/lane_receiver.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/log_limit.h"
#include "spdlog/spdlog.h"

namespace baton::kvtransfer {

std::optional<std::span<std::byte>> StagingGroups::Take() {
  if (free_.empty()) return std::nullopt;
  const std::span<std::byte> group = free_.back();
  free_.pop_back();
  return group;
}

LaneReceiver::LaneReceiver(const LaneOptions& options, DeviceLinkFactory factory,
                           StagingGroups* staging, OnGroup on_group,
                           std::function<void(LaneMessage)> send, const Clock& clock)
    : options_(options),
      staging_(staging),
      on_group_(std::move(on_group)),
      clock_(clock),
      generation_(std::move(factory), std::move(send)) {}

LaneReceiver::~LaneReceiver() { Close(); }

void LaneReceiver::OnMessage(const LaneMessage& message) {
  if (message.generation > generation()) Reset(message.generation, "the peer has aborted it");
  if (message.generation < generation()) return;
  std::visit([this](const auto& body) { Handle(body); }, message.body);
}

void LaneReceiver::Handle(const LaneReset&) {
  generation_.OnReset();
  GrantWaiting();
}

void LaneReceiver::Handle(const LaneOffer& offer) {
  if (offers_.size() == kMaxGroupsInFlight) {
    return Reset(generation() + 1, "the peer offers more groups than may be in flight");
  }
  offers_.push_back(offer);
  GrantWaiting();
}

// All or nothing: a group has staging memory, or it has no number and waits in line.
void LaneReceiver::GrantWaiting() {
  while (generation_.link() != nullptr && !offers_.empty()) {
    const std::optional<std::span<std::byte>> staging = staging_->Take();
    if (!staging.has_value()) return;
    const LaneOffer offer = offers_.front();
    offers_.pop_front();
    if (offer.bytes > staging->size()) {
      staging_->Return(*staging);
      return Reset(generation() + 1,
                   absl::StrCat("a group of ", offer.bytes,
                                " bytes is offered, which staging memory cannot hold"));
    }
    if (granted_.empty()) last_progress_ = clock_.Now();
    granted_[next_sequence_] = {*staging, offer.bytes};
    generation_.Say(LaneGrant{.post = offer.post, .sequence = next_sequence_++});
  }
}

void LaneReceiver::Handle(const LaneCommit& commit) {
  if (!granted_.contains(commit.sequence) || !order_.Commit(commit.sequence, commit.sequence)) {
    return Reset(generation() + 1, absl::StrCat("number ", commit.sequence,
                                                " was committed twice, or without a grant"));
  }
  last_progress_ = clock_.Now();
  IssueReady();
}

void LaneReceiver::Handle(const LaneDecline& decline) {
  const auto it = granted_.find(decline.sequence);
  if (it == granted_.end() || !order_.Decline(decline.sequence)) {
    return Reset(generation() + 1, absl::StrCat("number ", decline.sequence,
                                                " was declined twice, or without a grant"));
  }
  last_progress_ = clock_.Now();
  staging_->Return(it->second.staging);
  granted_.erase(it);
  IssueReady();
  GrantWaiting();
}

void LaneReceiver::Handle(const LaneLink& message) {
  if (generation_.OnLink(message)) return;
  Reset(generation() + 1, "the peer says too much to a link to come");
}

void LaneReceiver::IssueReady() {
  while (generation_.link() != nullptr) {
    const auto next = order_.TakeNext();
    if (!next.has_value()) return;
    const Group& group = granted_.at(next->first);
    generation_.link()->Receive(next->first, group.staging.first(group.bytes));
    issued_.push_back(next->first);
  }
}

void LaneReceiver::HandleDone() {
  if (generation_.link() == nullptr) return;
  const absl::StatusOr<uint64_t> done = generation_.link()->Done();
  if (!done.ok()) return Reset(generation() + 1, done.status().ToString());
  for (; done_ < *done; ++done_) {
    BATON_CHECK(!issued_.empty()) << "the link has done more than it was given";
    const uint64_t sequence = issued_.front();
    issued_.pop_front();
    const auto it = granted_.find(sequence);
    LaneAnswer answer{.sequence = sequence};
    answer.verdict = on_group_(it->second.staging.first(it->second.bytes), &answer.detail);
    staging_->Return(it->second.staging);
    granted_.erase(it);
    last_progress_ = clock_.Now();
    generation_.Say(std::move(answer));
  }
}

void LaneReceiver::Poll() {
  HandleDone();
  if (!granted_.empty() && clock_.Now() - last_progress_ > options_.patience) {
    Reset(generation() + 1, "a group did not end in time");
  }
  GrantWaiting();
}

void LaneReceiver::Reset(uint64_t generation, std::string_view why) {
  // A fault of a device is one of every lane, and a peer can end generations at will.
  static LogLimit limit(8, std::chrono::seconds(10));
  if (const auto held_back = limit.Next()) {
    spdlog::warn("device link {} from a sender has ended: {} ({} more)", generation_.number(), why,
                 *held_back);
  }
  Close();
  generation_.Begin(generation);
}

void LaneReceiver::Close() {
  generation_.Abort();  // before the memory that it writes is given back
  for (const auto& [sequence, group] : granted_) staging_->Return(group.staging);
  granted_.clear();
  offers_.clear();
  order_ = {};
  issued_.clear();
  done_ = 0;
  next_sequence_ = 1;
}

}  // namespace baton::kvtransfer
