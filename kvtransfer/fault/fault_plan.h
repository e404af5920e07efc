#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/config.h"
#include "kvtransfer/fault/fault.h"

// The file behind --fault-plan: faults of one process, on both planes.
//
//   seed: 7                  # 1
//   frames:                  # of hand-offs: a prefill worker's posts, a decode worker's receipts
//     corrupt: 0.01          # probabilities of drop, drop-answer, delay, reorder, duplicate,
//     delay: 0.1             #   corrupt, stall, cut, fail
//     max-duration: 50ms     # of those drawn, uniform; 100ms
//     at:                    # these win over the probabilities
//       - {n: 3, fault: stall, duration: 2s}
//   control:                 # messages of Prefill.Run, sent and received
//     at:
//       - {message: grant, n: 1, fault: duplicate}   # the first Grant
//
// What each fault does is said in fault.h.

namespace baton::kvtransfer {

struct FaultPlanFile {
  PlaneFaults frames;
  PlaneFaults control;
};

// INVALID_ARGUMENT names file, line and what is wrong: unknown keys with those that are known,
// values out of range, faults that the plane does not have. NOT_FOUND: the file cannot be read.
absl::StatusOr<FaultPlanFile> ReadFaultPlan(const std::string& path);

struct FaultConfig {
  bool allow_faults = false;
  std::string fault_plan{};  // empty: none
};

// `config` must outlive `parser`.
void BindFaults(FaultConfig& config, ConfigParser& parser);

// Two inactive planes when no file is named. FAILED_PRECONDITION when one is, but not allowed.
absl::StatusOr<FaultPlanFile> LoadFaults(const FaultConfig& config);

}  // namespace baton::kvtransfer
