#pragma once

#include <memory>

#include "absl/status/status.h"
#include "kvtransfer/fault/fault.h"
#include "kvtransfer/receiver.h"

// Role: does to the frames that come to a decode worker what a slow, faulty or confused one would
// do to them. Why: fault_transport.h sits with the sender; this end has faults of its own.
// Threading: as receiver.h says; frames that are held block the transport that delivers them.

namespace baton::kvtransfer {

// A frame has arrived and its answer must follow: there is delay and stall (the calling thread
// sleeps), corrupt (a bit, before it is verified), duplicate (delivered twice, the second answer
// counts) and fail (rejected). INVALID_ARGUMENT for a plane that asks for others.
absl::Status CheckReceiverFaults(const PlaneFaults& plane);

// The receiver itself when the plane is inactive.
std::unique_ptr<Receiver> WithFaults(std::unique_ptr<Receiver> receiver, const PlaneFaults& plane);

}  // namespace baton::kvtransfer
