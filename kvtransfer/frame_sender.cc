#include "kvtransfer/frame_sender.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "kvtransfer/device_frame.h"
#include "kvtransfer/host_frame.h"

namespace baton::kvtransfer {
namespace {

// Frames per Step: completions are looked at in between.
constexpr int kFramesPerStep = 4;
// How late a progress deadline may be noticed when no wake-up comes.
constexpr std::chrono::nanoseconds kDeadlineTick = std::chrono::milliseconds(50);

}  // namespace

FrameSender::FrameSender(const SenderOptions& options, std::unique_ptr<Transport> transport,
                         const Clock& clock)
    : options_(options),
      clock_(clock),
      transport_(std::move(transport)),
      frame_bytes_(std::min(options.frame_bytes, transport_->capabilities().max_frame_bytes)),
      peer_frames_(std::min(options.peer_frames, transport_->capabilities().max_frames_in_flight)),
      buffers_(transport_.get(), frame_bytes_, static_cast<size_t>(options.peer_frames)) {
  BATON_CHECK(options.send_tokens > 0 && options.attempt_frames > 0 && options.resends >= 0);
  BATON_CHECK(peer_frames_ > 0) << options.peer_frames;
  transport_->SetWakeup([this] { Wake(); });
}

FrameSender::~FrameSender() {
  BeginShutdown();
  while (!ShutDown()) {
    if (!Step()) Wait();
  }
}

absl::Status FrameSender::Open(OutboundSpec spec) {
  BATON_CHECK(spec.records != nullptr && spec.on_end != nullptr);
  if (!spec.held.valid()) {
    return absl::InvalidArgumentError(absl::StrCat("granted with the entries of ",
                                                   spec.held.entries, " tokens and the state of ",
                                                   spec.held.state));
  }
  if (absl::Status status = SendPlan::CheckLayout(spec.layout, frame_bytes_); !status.ok()) {
    return status;
  }
  SendPlan plan(spec.layout, spec.held, options_.send_tokens);
  const AttemptId attempt = spec.key.attempt;
  MutexLock lock(mutex_);
  if (shutting_down_) return absl::UnavailableError("the sender is shutting down");
  if (open_.contains(attempt)) {
    return absl::AlreadyExistsError(absl::StrCat("attempt ", attempt.ToString(), " is open"));
  }
  std::unique_ptr<Peer>& peer = peers_[spec.endpoint];
  if (peer == nullptr) peer = std::make_unique<Peer>(Peer{spec.endpoint});
  ++peer->attempts;
  auto outbound = std::make_unique<Outbound>(std::move(spec), std::move(plan), peer.get());
  turns_.push_back(outbound.get());
  open_[attempt] = std::move(outbound);
  return absl::OkStatus();
}

void FrameSender::Advance(const AttemptId& attempt, int64_t tokens) {
  {
    MutexLock lock(mutex_);
    Outbound* outbound = Find(attempt);
    if (outbound == nullptr || outbound->ending) return;
    outbound->plan.Advance(tokens);
  }
  Wake();
}

void FrameSender::Finish(const AttemptId& attempt, int64_t tokens) {
  {
    MutexLock lock(mutex_);
    Outbound* outbound = Find(attempt);
    if (outbound == nullptr || outbound->ending) return;
    if (tokens < outbound->spec.held.entries) {  // which the peer chose
      EndWith(*outbound,
              absl::InvalidArgumentError(absl::StrCat(
                  "granted from token ", outbound->spec.held.entries, " of a prompt of ", tokens)));
    } else {
      outbound->plan.Finish(tokens);
    }
  }
  Wake();
}

void FrameSender::Cancel(const AttemptId& attempt, absl::Status why) {
  BATON_CHECK(!why.ok()) << "cancelled without a reason";
  {
    MutexLock lock(mutex_);
    Outbound* outbound = Find(attempt);
    if (outbound == nullptr) return;
    EndWith(*outbound, std::move(why));
  }
  Wake();
}

SenderStats FrameSender::stats() const {
  MutexLock lock(mutex_);
  SenderStats stats = stats_;
  stats.attempts_open = open_.size();
  return stats;
}

bool FrameSender::Step() {
  bool worked = HandleCompletions();
  EnforceDeadlines();
  for (int i = 0; i < kFramesPerStep && PostNext(); ++i) worked = true;
  worked |= EndQuietAttempts();
  buffers_.Trim();
  return worked;
}

void FrameSender::Wait() {
  const std::chrono::nanoseconds interval = transport_->capabilities().poll_interval;
  MutexLock lock(mutex_);
  while (!woken_) {
    if (frames_.empty()) {
      wake_.Wait(mutex_);
    } else if (!wake_.WaitFor(mutex_, interval.count() > 0 ? interval : kDeadlineTick)) {
      break;
    }
  }
  woken_ = false;
}

void FrameSender::BeginShutdown() {
  {
    MutexLock lock(mutex_);
    shutting_down_ = true;
    for (auto& [attempt, outbound] : open_) {
      EndWith(*outbound, absl::CancelledError("the sender is shutting down"));
    }
  }
  Wake();
}

bool FrameSender::ShutDown() const {
  MutexLock lock(mutex_);
  return shutting_down_ && open_.empty();
}

bool FrameSender::HandleCompletions() {
  std::vector<Completion> completions = transport_->Poll();
  MutexLock lock(mutex_);
  for (Completion& completion : completions) HandleCompletion(std::move(completion));
  return !completions.empty();
}

void FrameSender::HandleCompletion(Completion completion) {
  const auto it = frames_.find(completion.post);
  BATON_CHECK(it != frames_.end()) << "completion of post " << completion.post << " out of nowhere";
  Frame& frame = *it->second;
  Outbound& owner = *frame.owner;
  CountInFlight(owner, -1);
  owner.last_progress = clock_.Now();
  if (completion.status.ok()) {
    HandleVerdict(frame, completion);
  } else {
    ++stats_.posts_failed;
    // A transport cancels other posts to the peer along with a fenced attempt's: to this attempt
    // the peer is just gone.
    EndWith(owner, absl::UnavailableError(absl::StrCat("frame ", completion.post, " to ",
                                                       owner.peer->endpoint, ": ",
                                                       completion.status.message())));
  }
  if (owner.resend.empty() || owner.resend.back() != completion.post) {
    buffers_.Return(std::move(frame.buffer));
    frames_.erase(it);
  }
}

void FrameSender::HandleVerdict(Frame& frame, const Completion& completion) {
  Outbound& owner = *frame.owner;
  ++stats_.frames_by_verdict[static_cast<size_t>(completion.verdict)];
  const std::string what =
      absl::StrCat("frame ", completion.post, " at ", owner.peer->endpoint, " is ",
                   std::string(FrameVerdictName(completion.verdict)), ": ", completion.detail);
  switch (completion.verdict) {
    case FrameVerdict::kAccepted:
      stats_.payload_bytes += frame.payload_bytes;
      return;
    case FrameVerdict::kStale:
      return EndWith(owner, absl::AbortedError(what));
    case FrameVerdict::kRejected:
      return EndWith(owner, absl::FailedPreconditionError(what));
    case FrameVerdict::kCorrupt:
      if (owner.ending) return;
      if (frame.resends == options_.resends) {
        return EndWith(owner, absl::DataLossError(
                                  absl::StrCat(what, " (sent ", frame.resends + 1, " times)")));
      }
      ++frame.resends;
      ++stats_.frames_resent;
      owner.resend.push_back(completion.post);
  }
}

void FrameSender::EnforceDeadlines() {
  std::vector<uint64_t> cancelled;
  {
    MutexLock lock(mutex_);
    const Clock::TimePoint now = clock_.Now();
    for (auto& [attempt, outbound] : open_) {
      if (outbound->fenced || outbound->in_flight == 0) continue;
      const bool stuck = now - outbound->last_progress >= options_.progress_timeout;
      if (!stuck && !shutting_down_) continue;
      if (stuck) {
        EndWith(*outbound, absl::DeadlineExceededError(
                               absl::StrCat("no answer from ", outbound->peer->endpoint, " for ",
                                            Seconds(options_.progress_timeout), " s")));
      }
      outbound->fenced = true;
      for (const auto& [sequence, frame] : frames_) {
        if (frame->owner == outbound.get()) cancelled.push_back(sequence);
      }
    }
  }
  for (const uint64_t sequence : cancelled) transport_->Cancel(sequence);
}

bool FrameSender::EndQuietAttempts() {
  std::vector<std::unique_ptr<Outbound>> ended;
  {
    MutexLock lock(mutex_);
    for (auto it = open_.begin(); it != open_.end();) {
      Outbound& outbound = *it->second;
      const bool delivered = outbound.plan.complete() && outbound.resend.empty();
      if (outbound.in_flight > 0 || !(outbound.ending || delivered)) {
        ++it;
        continue;
      }
      for (const uint64_t sequence : outbound.resend) {
        buffers_.Return(std::move(frames_.at(sequence)->buffer));
        frames_.erase(sequence);
      }
      ++(outbound.end.ok() ? stats_.attempts_ok : stats_.attempts_failed);
      turns_.erase(std::find(turns_.begin(), turns_.end(), &outbound));
      if (--outbound.peer->attempts == 0) peers_.erase(outbound.spec.endpoint);
      ended.push_back(std::move(it->second));
      open_.erase(it++);
    }
  }
  for (const auto& outbound : ended) outbound->spec.on_end(outbound->end);
  return !ended.empty();
}

bool FrameSender::PostNext() {
  Draft draft;
  if (!PlanNext(&draft)) return false;
  if (!draft.again) {
    if (absl::Status status = Gather(draft); !status.ok()) {
      MutexLock lock(mutex_);
      CountInFlight(*draft.owner, -1);
      EndWith(*draft.owner, std::move(status));
      return true;
    }
  }
  const Frame& frame = *frames_.at(draft.sequence);
  transport_->Post({.post = draft.sequence,
                    .endpoint = frame.owner->spec.endpoint,
                    .region = frame.buffer.region(),
                    .frame = frame.buffer.bytes().first(frame.bytes)});
  return true;
}

bool FrameSender::PlanNext(Draft* draft) {
  MutexLock lock(mutex_);
  Outbound* const next = TakeTurn();
  if (next == nullptr) return false;
  Outbound& outbound = *next;
  draft->owner = &outbound;
  if (outbound.in_flight == 0) outbound.last_progress = clock_.Now();
  CountInFlight(outbound, +1);
  ++stats_.frames_posted;
  if (!outbound.resend.empty()) {
    draft->again = true;
    draft->sequence = outbound.resend.front();
    outbound.resend.pop_front();
    return true;
  }
  draft->sequence = next_sequence_++;
  FramePlan plan = outbound.plan.NextFrame(frame_bytes_);
  draft->header = {.kind = plan.kind,
                   .key = outbound.spec.key,
                   .sequence = draft->sequence,
                   .first_token = static_cast<uint64_t>(outbound.spec.held.entries),
                   .tokens = static_cast<uint64_t>(plan.tokens)};
  draft->segments = std::move(plan.segments);
  return true;
}

// The first in turn that may send goes to the end of the line. Those that wait for a stuck peer
// keep their place and hold up nobody.
FrameSender::Outbound* FrameSender::TakeTurn() {
  for (auto it = turns_.begin(); it != turns_.end(); ++it) {
    Outbound* const outbound = *it;
    if (!MaySend(*outbound)) continue;
    turns_.erase(it);
    turns_.push_back(outbound);
    return outbound;
  }
  return nullptr;
}

// No lock: reading megabytes of records must not hold up the callers of Advance. The attempt cannot
// end meanwhile, because only this thread ends attempts.
absl::Status FrameSender::Gather(Draft& draft) {
  absl::StatusOr<FrameBuffer> buffer = buffers_.Take();
  if (!buffer.ok()) return buffer.status();
  const SequenceRecords& records = *draft.owner->spec.records;
  RecordMover* const mover = transport_->capabilities().mover;
  const size_t bytes =
      mover != nullptr
          ? EncodeDeviceFrame(draft.header, draft.segments, records, *mover, buffer->bytes())
          : EncodeFrame(draft.header, draft.segments, records, buffer->bytes());
  uint64_t payload = 0;
  for (const Segment& segment : draft.segments) payload += segment.bytes;
  frames_[draft.sequence] =
      std::make_unique<Frame>(Frame{draft.owner, *std::move(buffer), bytes, payload});
  return absl::OkStatus();
}

bool FrameSender::MaySend(const Outbound& outbound) const {
  const bool has_memory = frames_.size() < transport_->capabilities().max_regions;
  return !outbound.ending &&
         ((outbound.plan.has_frame() && has_memory) || !outbound.resend.empty()) &&
         outbound.in_flight < options_.attempt_frames && outbound.peer->in_flight < peer_frames_;
}

void FrameSender::CountInFlight(Outbound& outbound, int by) {
  outbound.in_flight += by;
  outbound.peer->in_flight += by;
  stats_.frames_in_flight += static_cast<uint64_t>(by);
}

void FrameSender::EndWith(Outbound& outbound, absl::Status why) {
  if (outbound.ending) return;  // the first reason is the one that explains
  outbound.ending = true;
  outbound.end = std::move(why);
}

FrameSender::Outbound* FrameSender::Find(const AttemptId& attempt) {
  const auto it = open_.find(attempt);
  return it == open_.end() ? nullptr : it->second.get();
}

void FrameSender::Wake() {
  {
    MutexLock lock(mutex_);
    woken_ = true;
  }
  wake_.NotifyOne();
}

}  // namespace baton::kvtransfer
