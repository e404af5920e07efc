#include "kvtransfer/receiver.h"

#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/mutex.h"
#include "kvtransfer/device_frame.h"
#include "kvtransfer/host_frame.h"
#include "kvtransfer/landing.h"

namespace baton::kvtransfer {
namespace {

size_t Bytes(std::span<const Landing::Write> writes) {
  size_t bytes = 0;
  for (const Landing::Write& write : writes) bytes += write.bytes.size();
  return bytes;
}

size_t PayloadBytes(const FrameView& frame) {
  size_t bytes = 0;
  for (const FrameView::Part& part : frame.parts) bytes += part.payload.size();
  return bytes;
}

class FrameReceiver final : public Receiver {
 public:
  explicit FrameReceiver(Executor* callbacks) : callbacks_(callbacks) {}
  ~FrameReceiver() override;

  absl::Status Expect(LandingSpec spec) override;
  void Abort(const AttemptId& attempt, absl::Status why) override;
  FrameVerdict OnFrame(std::span<const std::byte> frame, std::string* detail) override;
  FrameVerdict OnDeviceFrame(std::span<const std::byte> staging, RecordMover& mover,
                             std::string* detail) override;
  int64_t received_bytes(const AttemptId& attempt) const override;
  ReceiverStats stats() const override;

 private:
  // An open attempt. `ended` fences it: no frame enters any more; it leaves the table, and on_end
  // is called, when the last writer inside has left.
  struct Open {
    Open(LandingSpec s, Landing l) : spec(std::move(s)), landing(std::move(l)) {}

    LandingSpec spec;
    Landing landing;
    int writers = 0;
    int64_t received_bytes = 0;
    bool ended = false;
    absl::Status end;
  };

  // Writes what was claimed of a frame; returns the digest of its payload.
  using Scatter = std::function<uint64_t(
      const FrameView& frame, std::span<const Landing::Write> writes, SequenceRecords& records)>;
  FrameVerdict Process(const absl::StatusOr<FrameView>& view, const Scatter& scatter,
                       std::string* detail);
  // The attempt that the frame may be written to, entered as a writer, and what to write.
  FrameVerdict Enter(const FrameView& frame, Open** open, std::vector<Landing::Write>* writes,
                     std::string* detail);
  // The verdict on a frame of which `writes` have been written, with the right bytes or not.
  FrameVerdict Leave(Open* open, std::span<const Landing::Write> writes, bool intact,
                     std::string* detail);
  void EndIfQuiet(Open* open) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Executor* const callbacks_;
  mutable Mutex mutex_;
  // Ordered, so that a test's run repeats.
  std::map<AttemptId, std::unique_ptr<Open>> open_ ABSL_GUARDED_BY(mutex_);
  ReceiverStats stats_ ABSL_GUARDED_BY(mutex_);
};

FrameReceiver::~FrameReceiver() {
  MutexLock lock(mutex_);
  while (!open_.empty()) {
    Open* open = open_.begin()->second.get();
    BATON_CHECK(open->writers == 0) << "a transport is still delivering";
    if (!open->ended) open->end = absl::CancelledError("the receiver is shutting down");
    open->ended = true;
    EndIfQuiet(open);
  }
}

absl::Status FrameReceiver::Expect(LandingSpec spec) {
  BATON_CHECK(spec.records != nullptr && spec.on_end != nullptr);
  if (!spec.held.valid() || spec.tokens < spec.held.entries) {
    return absl::InvalidArgumentError(
        absl::StrCat("hand-off of ", spec.tokens, " tokens of which the entries of ",
                     spec.held.entries, " and the state of ", spec.held.state, " are held"));
  }
  Landing landing(spec.layout, spec.held, spec.tokens);
  const AttemptId attempt = spec.key.attempt;
  MutexLock lock(mutex_);
  auto [it, inserted] = open_.try_emplace(attempt);
  if (!inserted) {
    return absl::AlreadyExistsError(absl::StrCat("attempt ", attempt.ToString(), " is expected"));
  }
  it->second = std::make_unique<Open>(std::move(spec), std::move(landing));
  EndIfQuiet(it->second.get());  // nothing may be missing: the grant covered the prompt
  return absl::OkStatus();
}

void FrameReceiver::Abort(const AttemptId& attempt, absl::Status why) {
  BATON_CHECK(!why.ok()) << "aborted without a reason";
  MutexLock lock(mutex_);
  const auto it = open_.find(attempt);
  if (it == open_.end() || it->second->ended) return;
  it->second->ended = true;
  it->second->end = std::move(why);
  EndIfQuiet(it->second.get());
}

FrameVerdict FrameReceiver::OnFrame(std::span<const std::byte> frame, std::string* detail) {
  return Process(DecodeFrame(frame), ScatterFrame, detail);
}

FrameVerdict FrameReceiver::OnDeviceFrame(std::span<const std::byte> staging, RecordMover& mover,
                                          std::string* detail) {
  const auto scatter = [&mover](const FrameView& frame, std::span<const Landing::Write> writes,
                                SequenceRecords& records) {
    return ScatterDeviceFrame(frame, writes, records, mover);
  };
  return Process(DecodeDeviceFrame(staging, mover), scatter, detail);
}

FrameVerdict FrameReceiver::Process(const absl::StatusOr<FrameView>& view, const Scatter& scatter,
                                    std::string* detail) {
  detail->clear();
  FrameVerdict verdict = FrameVerdict::kCorrupt;
  Open* open = nullptr;
  std::vector<Landing::Write> writes;
  if (view.ok()) {
    verdict = Enter(*view, &open, &writes, detail);
  } else {
    *detail = std::string(view.status().message());
  }
  if (open != nullptr) {
    const bool intact =
        writes.empty() || scatter(*view, writes, *open->spec.records) == view->digest;
    verdict = Leave(open, writes, intact, detail);
  }
  MutexLock lock(mutex_);
  ++stats_.frames_by_verdict[static_cast<size_t>(verdict)];
  return verdict;
}

FrameVerdict FrameReceiver::Enter(const FrameView& frame, Open** open,
                                  std::vector<Landing::Write>* writes, std::string* detail) {
  const HandoffKey& key = frame.header.key;
  MutexLock lock(mutex_);
  const auto it = open_.find(key.attempt);
  if (it == open_.end() || it->second->ended) {
    *detail = absl::StrCat("attempt ", key.attempt.ToString(), " is not expected");
    return FrameVerdict::kStale;
  }
  Open* const found = it->second.get();
  if (key != found->spec.key) {
    *detail = absl::StrCat("attempt ", key.attempt.ToString(), " from sender ", key.sender,
                           " to receiver ", key.receiver, ", expected ", found->spec.key.sender,
                           " to ", found->spec.key.receiver);
    return FrameVerdict::kStale;
  }
  if (absl::Status status = found->landing.Check(frame); !status.ok()) {
    *detail = std::string(status.message());
    return FrameVerdict::kRejected;
  }
  *writes = found->landing.Claim(frame);
  if (found->writers > 0 && Bytes(*writes) < PayloadBytes(frame)) {
    // What is missing from the claim may be in the hands of a writer that turns out corrupt.
    found->landing.GiveBack(*writes);
    writes->clear();
    *detail = "records of it are just being written from another frame";
    return FrameVerdict::kCorrupt;
  }
  if (writes->empty()) ++stats_.duplicate_frames;
  ++found->writers;
  *open = found;
  return FrameVerdict::kAccepted;
}

FrameVerdict FrameReceiver::Leave(Open* open, std::span<const Landing::Write> writes, bool intact,
                                  std::string* detail) {
  MutexLock lock(mutex_);
  if (intact) {
    open->received_bytes += static_cast<int64_t>(Bytes(writes));
    stats_.payload_bytes += Bytes(writes);
  } else {
    open->landing.GiveBack(writes);
  }
  --open->writers;
  const bool expected = !open->ended || open->end.ok();
  EndIfQuiet(open);
  if (!expected) {
    *detail = "the attempt was aborted meanwhile";
    return FrameVerdict::kStale;
  }
  if (intact) return FrameVerdict::kAccepted;
  *detail = "the payload's digest is not the one in the head";
  return FrameVerdict::kCorrupt;
}

void FrameReceiver::EndIfQuiet(Open* open) {
  if (open->writers > 0) return;
  if (!open->ended) {
    if (!open->landing.complete()) return;
    open->ended = true;  // and end stays OK
  }
  ++(open->end.ok() ? stats_.landings_ok : stats_.landings_failed);
  const auto node = open_.extract(open->spec.key.attempt);
  callbacks_->Run(
      [on_end = std::move(open->spec.on_end), end = std::move(open->end)] { on_end(end); });
}

int64_t FrameReceiver::received_bytes(const AttemptId& attempt) const {
  MutexLock lock(mutex_);
  const auto it = open_.find(attempt);
  return it == open_.end() ? 0 : it->second->received_bytes;
}

ReceiverStats FrameReceiver::stats() const {
  MutexLock lock(mutex_);
  ReceiverStats stats = stats_;
  stats.landings_open = open_.size();
  return stats;
}

}  // namespace

std::unique_ptr<Receiver> MakeReceiver(Executor* callbacks) {
  return std::make_unique<FrameReceiver>(callbacks);
}

}  // namespace baton::kvtransfer
