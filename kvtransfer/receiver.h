#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "common/cache_layout.h"
#include "common/ids.h"
#include "kvtransfer/sender.h"

// Role: the decode side of hand-offs: verifies every frame, writes reserved records, says when all
// of them are there.
// Why: a late, duplicate or foreign frame must change nothing.
// Threading: all calls thread-safe; callbacks run on the transfer thread, no lock held.

namespace baton::kvtransfer {

struct LandingSpec {
  HandoffKey key;
  SequenceRecords* records = nullptr;  // writable until on_end has been called
  CacheLayout layout;
  int64_t first_token = 0;
  int64_t tokens = 0;                  // of the prompt: the records expected are those of LiveRecords
  // Exactly once: OK when every record was verified and written, else why not. After it nothing
  // writes to `records`.
  std::function<void(absl::Status)> on_end;
};

enum class FrameVerdict : uint8_t { kAccepted, kStale, kCorrupt, kRejected };

class Receiver {
 public:
  virtual ~Receiver() = default;

  // From now on frames of this attempt are welcome. ALREADY_EXISTS if it is open.
  virtual absl::Status Expect(LandingSpec spec) = 0;
  // Fences the attempt: no frame is written after this; on_end follows once none is being written.
  virtual void Abort(const AttemptId& attempt, absl::Status why) = 0;

  // For transports: one frame as it came. Blocks while it is verified and written.
  virtual FrameVerdict OnFrame(std::span<const std::byte> frame, std::string* detail) = 0;

  // Bytes verified so far of an open attempt; 0 when unknown.
  virtual int64_t received_bytes(const AttemptId& attempt) const = 0;
};

}  // namespace baton::kvtransfer
