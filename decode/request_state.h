#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"

// The life of one request on a decode worker as a pure state machine: no thread, socket, clock or
// engine. Every event says what the owner has to do now; an event that means nothing in a phase
// (late, duplicate) does nothing.
//
//   kQueued --AskPeer--> kPrefilling --Granted--> kLanding --(landed and finished)--> kRunning
//      |  \                  | refused before Accepted: next candidate                  ^  |
//      |   no candidate      |                                                          |  |
//      |    \--> kLocal ------------- pages and prompt computed ------------------------/  |
//      \-------- cancel, failure, deadline: from every phase --------------------> kEnded <-/

namespace baton::decode {

enum class Phase : uint8_t {
  kQueued,      // admitted, nobody asked yet
  kPrefilling,  // a prefill worker has the prompt; holds no pages here
  kLanding,     // granted: pages are reserved and the transport may write them
  kLocal,       // this worker computes the prompt, or waits for the pages to do so
  kRunning,     // decoding
  kEnded,
};

enum class Action : uint8_t {
  kNone,
  kAskPeer,   // open Prefill.Run to candidate()
  kAskPages,  // wait in line for pages and a slot
  kFence,     // abort the landing; OnLanded follows
  kAdopt,     // every byte and the first token are there: run
  kEnd,       // tell the client end_status(); fence if landing_open()
};

// Whose fault an end is, so that the right worker is avoided.
enum class Leg : uint8_t { kDecode, kPrefill, kTransfer };

class RequestState {
 public:
  // `candidates` prefill workers may be asked; 0: local prefill.
  explicit RequestState(size_t candidates) : candidates_(candidates) {}

  Phase phase() const { return phase_; }
  // Index of the prefill worker that is asked, or was asked last.
  size_t candidate() const { return candidate_; }
  // The transport may still write the sequence's pages: they must be kept.
  bool landing_open() const { return landing_open_; }
  bool accepted() const { return accepted_; }
  const absl::Status& end_status() const { return end_status_; }
  Leg end_leg() const { return end_leg_; }  // of an end that is not OK

  // Leaves the queue. `candidate` is the first that has room in its quota.
  Action OnDispatch(size_t candidate);
  // The candidate refused (or could not be reached) and `next` is tried; `next` == candidates:
  // none is left, which ends the request with `why`.
  Action OnRefused(size_t next, absl::Status why);
  Action OnAccepted();
  Action OnStarted();
  Action OnGranted();
  Action OnFinished();                   // first token known
  Action OnLanded(absl::Status status);  // the transport is done with the pages, once
  Action OnStreamEnded(absl::Status status);
  Action OnLocalPrefilled();
  // Pages were taken away from a running request: its tokens are computed anew, here.
  Action OnPreempted();
  // Complete (OK), cancelled, failed, out of time.
  Action OnEnd(absl::Status status, Leg leg = Leg::kDecode);

 private:
  Action End(absl::Status status, Leg leg);
  Action EndByStream(absl::Status status);

  size_t candidates_;
  size_t candidate_ = 0;
  Phase phase_ = Phase::kQueued;
  bool accepted_ = false;
  bool started_ = false;
  bool asked_pages_ = false;
  bool finished_ = false;
  bool landed_ = false;
  bool landing_open_ = false;
  absl::Status stream_status_;  // of the Run stream, when it ended while bytes were landing
  bool stream_ended_ = false;
  absl::Status end_status_;
  Leg end_leg_ = Leg::kDecode;
};

}  // namespace baton::decode
