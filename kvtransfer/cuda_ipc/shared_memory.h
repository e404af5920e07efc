#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "common/fd.h"
#include "kvtransfer/device_lane/fabric.h"

// Device memory of CUDA's virtual memory management, which another process of the machine can map
// from a file descriptor. The memory itself goes with the last process that has it mapped: a peer
// that is killed takes nothing away.

namespace baton::kvtransfer::cuda_ipc {

// On the calling thread's device. RESOURCE_EXHAUSTED when there is not so much left; UNAVAILABLE
// when driver or card cannot share memory.
absl::StatusOr<StagingMemory> AllocateShared(size_t bytes);

// Maps what another process has exported, at least `bytes`; its device may be another one that this
// one reaches. UNAVAILABLE, with the driver's reason, when that does not work or `memory` is not
// such memory or smaller.
absl::StatusOr<std::shared_ptr<std::byte>> MapShared(const Fd& memory, uint64_t bytes);

}  // namespace baton::kvtransfer::cuda_ipc
