#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "engine/model/backend.h"

// The backend that only some builds have. The build links one of two sources:
// engine/cuda/backend.cc where a CUDA compiler was found, engine/model/no_device_backend.cc
// elsewhere.

namespace baton::engine {

bool HasDeviceBackend();

// FailedPrecondition when the machine has no device that the kernels were built for.
absl::StatusOr<std::unique_ptr<Backend>> MakeDeviceBackend();

}  // namespace baton::engine
