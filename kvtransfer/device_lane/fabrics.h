#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "kvtransfer/device_lane/fabric.h"

namespace baton::kvtransfer {

// Whether frames of this transport lie on a device, as the caches of its workers must.
bool IsDeviceTransport(std::string_view name);

// The fabric of a device transport. UNAVAILABLE naming what binary, machine or installation lacks.
absl::StatusOr<std::unique_ptr<Fabric>> MakeFabric(const std::string& name);

}  // namespace baton::kvtransfer
