#include "absl/status/status.h"
#include "engine/model/device_backend.h"

namespace baton::engine {

bool HasDeviceBackend() { return false; }

absl::StatusOr<std::unique_ptr<Backend>> MakeDeviceBackend() {
  return absl::FailedPreconditionError("built without CUDA");
}

}  // namespace baton::engine
