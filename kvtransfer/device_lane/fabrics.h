#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kvtransfer/device_lane/fabric.h"

namespace baton::kvtransfer {

// The fabric of a device transport. UNAVAILABLE naming what binary, machine or installation lacks.
absl::StatusOr<std::unique_ptr<Fabric>> MakeFabric(const std::string& name);

}  // namespace baton::kvtransfer
