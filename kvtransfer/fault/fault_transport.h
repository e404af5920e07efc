#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "common/clock.h"
#include "kvtransfer/fault/fault.h"
#include "kvtransfer/transport.h"

// Role: a decorator that does to frames what networks, peers and memory do to them.
// Why: every failure is produced on purpose, for any transport, without a line in it.
// Threading: as transport.h says. Held frames are released by Poll.

namespace baton::kvtransfer {

// Asked once for every post, in order.
using FaultPlan = std::function<Fault(const PostRequest& request)>;

FaultPlan PlannedFaults(PlaneFaults plane);
// The same seed and rates yield the same faults in the same order.
FaultPlan RandomFaults(const FaultRates& rates, uint64_t seed);

// `clock` outlives the transport.
std::unique_ptr<Transport> WithFaults(std::unique_ptr<Transport> transport, FaultPlan plan,
                                      const Clock& clock = Clock::Real());

}  // namespace baton::kvtransfer
