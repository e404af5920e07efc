#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvtransfer/record_mover.h"

// Role: carries frames from one sender to the receivers of other processes: five verbs (register,
// post, poll, cancel, release) and capabilities. Knows nothing of requests, attempts or caches.
// Why: one state machine (sender.h, receiver.h) serves every transport, and faults are injected by
// a decorator (fault/), not by branches in each of them.
// Threading: all verbs are called by one thread, the sender's transfer thread, and none blocks.
// Only the wake-up is called from elsewhere.
//
//   Register -> Post -> (Cancel) -> exactly one Completion from Poll -> ... -> Release

namespace baton::kvtransfer {

// A receiver's answer to one frame.
enum class FrameVerdict : uint8_t {
  kAccepted,  // verified and written (or already there)
  kStale,     // attempt or incarnation is not, or no longer, expected: dropped
  kCorrupt,   // checksum or structure, or too early: send it again
  kRejected,  // well-formed but not part of the grant: the attempt fails
};
inline constexpr int kFrameVerdictCount = 4;

std::string_view FrameVerdictName(FrameVerdict verdict);

struct TransportCapabilities {
  std::string name;              // as in Manifest::transports
  size_t max_frame_bytes = 0;    // header, table and payload together
  int max_frames_in_flight = 0;  // per endpoint; the caller keeps to it
  // How often Poll must be called while posts are outstanding although no wake-up came; zero for
  // transports that always wake.
  std::chrono::nanoseconds poll_interval{0};
  // Of transports whose regions are staging memory, which the caller touches through it alone and
  // fills with device frames.
  RecordMover* mover = nullptr;
  // That can be registered at a time: the caller has no more frames over all endpoints.
  size_t max_regions = std::numeric_limits<size_t>::max();
};

// Names memory that the transport may read; never zero.
using RegionId = uint64_t;

struct Region {
  RegionId id = 0;
  std::span<std::byte> memory;  // the caller's to write from Register to Release
};

struct PostRequest {
  uint64_t post = 0;                 // chosen by the caller, unique among its outstanding posts
  std::string_view endpoint;         // the transport's address of the receiver
  RegionId region = 0;               // that holds all of `frame`
  std::span<const std::byte> frame;  // unchanged and alive until the completion
};

struct Completion {
  uint64_t post = 0;
  // OK: the receiver answered, see `verdict`. UNAVAILABLE: the peer cannot be reached or died.
  // CANCELLED: by Cancel. Whatever it is, the transport never reads the frame again. When it is not
  // OK the frame may or may not have reached the receiver, whose own fence (Receiver::Abort)
  // decides whether it is still written.
  absl::Status status{};
  FrameVerdict verdict = FrameVerdict::kAccepted;  // of an OK completion
  std::string detail{};                            // names what is wrong; empty when accepted
};

class Transport {
 public:
  virtual ~Transport() = default;

  virtual const TransportCapabilities& capabilities() const = 0;

  // `wakeup` is called from any thread when Poll has something new. Once, before the first Post.
  virtual void SetWakeup(std::function<void()> wakeup) = 0;

  // Memory of `bytes` that the transport can read: its choice, because some need it pinned, shared
  // or on a device. At most max_frame_bytes. RESOURCE_EXHAUSTED when there is none left.
  virtual absl::StatusOr<Region> Register(size_t bytes) = 0;
  // No post of the region may be outstanding.
  virtual void Release(RegionId region) = 0;

  // Starts sending. Every post yields exactly one completion, whatever happens to the peer.
  virtual void Post(const PostRequest& request) = 0;
  // Completions since the last call, oldest first; empty when there are none.
  virtual std::vector<Completion> Poll() = 0;
  // Ends a post now, at any cost: where a single frame cannot be withdrawn, the connection to its
  // peer is broken and other posts to that peer fail too. The completion still comes from Poll, and
  // soon. For peers that have stopped answering; no effect on a post that is complete.
  virtual void Cancel(uint64_t post) = 0;
};

}  // namespace baton::kvtransfer
