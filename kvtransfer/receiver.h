#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "common/cache_layout.h"
#include "common/ids.h"
#include "kvtransfer/executor.h"
#include "kvtransfer/handoff_key.h"
#include "kvtransfer/handoff_records.h"
#include "kvtransfer/record_mover.h"
#include "kvtransfer/transport.h"

// Role: the decode side of hand-offs: verifies every frame, writes reserved records, says when all
// of them are there.
// Why: a late, duplicate or foreign frame must change nothing.
// Invariant: a payload is verified by the copy that writes it, so wrong bytes may stand in records
// of the grant. Until on_end has come with OK those are not there: a corrupt frame's are missing
// again, no frame is accepted for records that another is still writing, and whoever owns them
// neither reads them nor passes them on.
// Threading: all calls thread-safe. Frames are verified and written on the thread that calls
// OnFrame, which every transport makes a transfer thread, never the engine's. Callbacks run on the
// executor, no lock held.

namespace baton::kvtransfer {

struct LandingSpec {
  HandoffKey key;
  SequenceRecords* records = nullptr;  // writable, and garbage, until on_end has been called
  CacheLayout layout;
  Held held = {};      // there already
  int64_t tokens = 0;  // of the prompt: the records expected are those of HandoffRecords
  // Exactly once: OK when every record was verified and written, else why not. After it nothing
  // writes to `records`.
  std::function<void(absl::Status)> on_end;
};

struct ReceiverStats {
  uint64_t frames_by_verdict[kFrameVerdictCount] = {};
  uint64_t duplicate_frames = 0;  // accepted, but every record was there already
  uint64_t payload_bytes = 0;     // verified and written
  uint64_t landings_ok = 0;
  uint64_t landings_failed = 0;
  uint64_t landings_open = 0;  // as of now
};

class Receiver {
 public:
  virtual ~Receiver() = default;

  // From now on frames of this attempt are welcome. ALREADY_EXISTS if it is open. An attempt that
  // has ended may be expected again only from another sender incarnation: late frames of the same
  // key could not be told apart.
  virtual absl::Status Expect(LandingSpec spec) = 0;
  // Fences the attempt: no frame is written after this; on_end follows once none is being written.
  // Unknown attempts: no effect.
  virtual void Abort(const AttemptId& attempt, absl::Status why) = 0;

  // For transports: one frame as it came (host_frame.h), in memory that its sender may still
  // change. Blocks while it is written and verified. `detail` says what is wrong with a frame that
  // is not accepted.
  virtual FrameVerdict OnFrame(std::span<const std::byte> frame, std::string* detail) = 0;
  // The same for a frame in staging memory (device_frame.h).
  virtual FrameVerdict OnDeviceFrame(std::span<const std::byte> staging, RecordMover& mover,
                                     std::string* detail) = 0;

  // Bytes verified so far of an open attempt; 0 when unknown.
  virtual int64_t received_bytes(const AttemptId& attempt) const = 0;

  virtual ReceiverStats stats() const = 0;
};

// `callbacks` outlives the receiver. Destroy the receiver when no transport can call it any more;
// open landings end with CANCELLED.
std::unique_ptr<Receiver> MakeReceiver(Executor* callbacks);

}  // namespace baton::kvtransfer
