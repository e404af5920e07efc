#include "kvtransfer/device_lane/lane_sender.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace baton::kvtransfer {

LaneSender::LaneSender(const LaneOptions& options, DeviceLinkFactory factory,
                       std::function<void(LaneMessage)> send, const Clock& clock)
    : options_(options), clock_(clock), generation_(std::move(factory), std::move(send)) {}

void LaneSender::Post(uint64_t post, std::span<const std::byte> staging) {
  const bool added = posts_.try_emplace(post, Outstanding{.staging = staging}).second;
  BATON_CHECK(added) << "post " << post << " is outstanding";
  unoffered_.push_back(post);
  OfferWaiting();
}

void LaneSender::OfferWaiting() {
  while (generation_.link() != nullptr && !unoffered_.empty() &&
         offered_ - declined_ - done_ < kMaxGroupsInFlight) {
    const uint64_t post = unoffered_.front();
    unoffered_.pop_front();
    ++offered_;
    generation_.Say(LaneOffer{.post = post, .bytes = posts_.at(post).staging.size()});
  }
}

void LaneSender::Cancel(uint64_t post) {
  const auto it = posts_.find(post);
  if (it == posts_.end() || it->second.cancelled) return;
  if (!it->second.committed || it->second.ran) {
    std::erase_if(post_of_, [post](const auto& number) { return number.second == post; });
    std::erase(unoffered_, post);
    Complete(post, {.status = absl::CancelledError("cancelled")});
    return;
  }
  it->second.cancelled = true;
  it->second.since = clock_.Now();
}

void LaneSender::OnMessage(const LaneMessage& message) {
  if (message.generation > generation()) {
    Reset(message.generation, absl::UnavailableError("the peer has aborted the device link"));
  }
  if (message.generation < generation()) return;
  std::visit([this](const auto& body) { Handle(body); }, message.body);
}

void LaneSender::Handle(const LaneReset&) {
  generation_.OnReset();
  OfferWaiting();
}

void LaneSender::Handle(const LaneGrant& grant) {
  if (grant.sequence > offered_) {
    return Reset(generation() + 1, absl::UnavailableError(absl::StrCat(
                                       "number ", grant.sequence, " was granted, but only ",
                                       offered_, " groups were offered")));
  }
  const auto it = posts_.find(grant.post);
  const bool wanted = it != posts_.end() && !it->second.committed;
  const bool first =
      wanted ? order_.Commit(grant.sequence, grant.post) : order_.Decline(grant.sequence);
  if (!first) {
    Reset(generation() + 1,
          absl::UnavailableError(absl::StrCat("number ", grant.sequence, " was granted twice")));
    return;
  }
  if (wanted) {
    it->second.committed = true;
    it->second.since = clock_.Now();
    post_of_[grant.sequence] = grant.post;
    generation_.Say(LaneCommit{grant.sequence});
  } else {
    generation_.Say(LaneDecline{grant.sequence});
    ++declined_;
    OfferWaiting();
  }
  IssueReady();
}

void LaneSender::IssueReady() {
  while (generation_.link() != nullptr) {
    const auto next = order_.TakeNext();
    if (!next.has_value()) return;
    generation_.link()->Send(next->first, posts_.at(next->second).staging);
    issued_.push_back(next->first);
    unanswered_.insert(next->first);
  }
}

void LaneSender::Handle(const LaneAnswer& answer) {
  // Nothing else has landed: the post of a group that is not issued must stay until it is.
  if (unanswered_.erase(answer.sequence) == 0) {
    return Reset(generation() + 1,
                 absl::UnavailableError(absl::StrCat("number ", answer.sequence,
                                                     " was answered twice, or before it ran")));
  }
  const auto it = post_of_.find(answer.sequence);
  if (it == post_of_.end()) return;  // cancelled, and run
  const uint64_t post = it->second;
  post_of_.erase(it);
  // What the peer has verified this end's device has read, whether it has said so yet or not.
  Complete(post, {.verdict = answer.verdict, .detail = answer.detail});
}

void LaneSender::Handle(const LaneLink& message) {
  if (generation_.OnLink(message)) return;
  Reset(generation() + 1, absl::UnavailableError("the peer says too much to a link to come"));
}

void LaneSender::CountDone() {
  if (generation_.link() == nullptr) return;
  const absl::StatusOr<uint64_t> done = generation_.link()->Done();
  if (!done.ok()) return Reset(generation() + 1, done.status());
  for (; done_ < *done; ++done_) {
    BATON_CHECK(!issued_.empty()) << "the link has done more than it was given";
    const auto number = post_of_.find(issued_.front());
    issued_.pop_front();
    if (number == post_of_.end()) continue;  // answered before
    const auto it = posts_.find(number->second);
    it->second.ran = true;
    if (!it->second.cancelled) continue;
    post_of_.erase(number);
    Complete(it->first, {.status = absl::CancelledError("cancelled")});
  }
}

std::vector<Completion> LaneSender::Poll() {
  CountDone();
  const Clock::TimePoint now = clock_.Now();
  for (const auto& [post, outstanding] : posts_) {
    if (!outstanding.committed || outstanding.ran) continue;
    if (now - outstanding.since <= options_.patience) continue;
    Reset(generation() + 1, absl::UnavailableError("a group did not end in time"));
    break;
  }
  OfferWaiting();
  return std::exchange(completions_, {});
}

void LaneSender::Reset(uint64_t generation, const absl::Status& why) {
  generation_.Begin(generation);
  order_ = {};
  post_of_.clear();
  issued_.clear();
  unanswered_.clear();
  unoffered_.clear();
  offered_ = declined_ = done_ = 0;
  std::vector<std::pair<uint64_t, bool>> failed;
  for (const auto& [post, outstanding] : posts_) failed.emplace_back(post, outstanding.cancelled);
  for (const auto& [post, cancelled] : failed) {
    Complete(post, {.status = cancelled ? absl::CancelledError("cancelled") : why});
  }
}

void LaneSender::Close(absl::Status why) { Reset(generation() + 1, why); }

void LaneSender::Complete(uint64_t post, Completion completion) {
  posts_.erase(post);
  completion.post = post;
  completions_.push_back(std::move(completion));
}

}  // namespace baton::kvtransfer
