#pragma once

#include <cstdint>

#include "absl/status/status.h"

// The life of one hand-off attempt on a prefill worker as a pure state machine: no thread, socket,
// clock or engine. Every event says what the owner has to do now; an event that means nothing in a
// phase (late, duplicate) does nothing, one that breaks the protocol ends the attempt.
//
//   kQueued --OnStarted--> kComputing --OnComputed--> kComputed --received--> kEnded
//   A grant may come any time after the start. Failure, cancel, deadline: from everywhere to
//   kEnded.

namespace baton::prefill {

enum class Phase : uint8_t {
  kQueued,     // holds no pages
  kComputing,  // chunk by chunk; pages are reserved
  kComputed,   // first token sampled; frames are under way, or a grant is awaited
  kEnded,
};

enum class Action : uint8_t {
  kNone,
  kOpenTransfer,  // the grant is here: send what is computed
  kEnd,           // answer the stream with end_status(); cancel the transfer if transfer_open()
};

class RunState {
 public:
  Phase phase() const { return phase_; }
  bool granted() const { return granted_; }
  // The transport may still read the sequence's pages: they must be kept.
  bool transfer_open() const { return transfer_open_; }
  const absl::Status& end_status() const { return end_status_; }

  void OnStarted();
  Action OnGrant();
  void OnComputed();
  Action OnReceived();
  // The transport touches nothing any more, once per kOpenTransfer.
  Action OnTransferEnded(absl::Status status);
  Action OnEnd(absl::Status status);  // stream gone, deadline, engine refused

 private:
  Action End(absl::Status status);

  Phase phase_ = Phase::kQueued;
  bool granted_ = false;
  bool transfer_open_ = false;
  absl::Status end_status_;
};

}  // namespace baton::prefill
