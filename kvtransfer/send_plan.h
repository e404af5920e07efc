#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "absl/status/status.h"
#include "common/cache_layout.h"
#include "kvtransfer/frame.h"
#include "kvtransfer/handoff_records.h"

namespace baton::kvtransfer {

struct FramePlan {
  FrameKind kind = FrameKind::kProgress;
  int64_t tokens = 0;
  std::vector<Segment> segments;
};

// Which records one attempt may send, in which frames. Pure; not thread-safe. Append-only records
// come in whole units of `send_tokens` while the prompt is being computed; the rest and the state
// follow after Finish.
class SendPlan {
 public:
  SendPlan(CacheLayout layout, const Held& held, int64_t send_tokens);

  // INVALID_ARGUMENT, naming stream and size, when a record does not fit a frame of `frame_bytes`.
  static absl::Status CheckLayout(const CacheLayout& layout, size_t frame_bytes);

  // Positions [0, tokens) are computed. Smaller values than before change nothing.
  void Advance(int64_t tokens);
  // The prompt has `tokens`; once.
  void Finish(int64_t tokens);

  bool has_frame() const { return !ready_.empty(); }
  bool complete() const { return finished_ && ready_.empty(); }

  // As many ready records, in order, as fit `frame_bytes`. has_frame() must hold.
  FramePlan NextFrame(size_t frame_bytes);

 private:
  void AddAppendOnly(int64_t tokens);
  void Add(const StreamLayout& stream, IndexRange indices);

  const CacheLayout layout_;
  const Held held_;
  const int64_t send_tokens_;
  int64_t planned_tokens_;  // append-only records of positions before it are in ready_ or sent
  int64_t tokens_ = 0;
  bool finished_ = false;
  std::deque<RecordRange> ready_;
};

}  // namespace baton::kvtransfer
