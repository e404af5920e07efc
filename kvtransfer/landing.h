#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "kvtransfer/frame.h"
#include "kvtransfer/handoff_records.h"
#include "kvtransfer/interval_set.h"

namespace baton::kvtransfer {

// Which records one attempt expects and which have been claimed by frames. Pure; not thread-safe.
// A claimed record is written by its claimer alone, so a duplicate is never written twice.
class Landing {
 public:
  struct Write {
    RecordRange range;
    std::span<const std::byte> bytes;  // of the frame
  };

  Landing(const CacheLayout& layout, const Held& held, int64_t tokens);

  // Whether every segment is part of the grant. FAILED_PRECONDITION naming what is not.
  absl::Status Check(const FrameView& frame) const;

  // What of a checked frame is still missing, claimed for the caller; empty for a duplicate.
  std::vector<Write> Claim(const FrameView& frame);
  // The claimer has written the wrong bytes: the records are missing again.
  void GiveBack(std::span<const Write> writes);

  bool complete() const { return missing_records_ == 0; }

 private:
  struct Stream {
    StreamLayout layout;
    IndexRange expected;               // of every layer
    std::vector<IntervalSet> claimed;  // by layer
  };

  absl::Status CheckSegment(const Segment& segment, FrameKind kind) const;
  const Stream* Find(CacheStream stream) const;

  const Held held_;
  const int64_t tokens_;
  std::vector<Stream> streams_;
  int64_t missing_records_ = 0;  // over all layers
};

}  // namespace baton::kvtransfer
