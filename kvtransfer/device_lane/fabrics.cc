#include "kvtransfer/device_lane/fabrics.h"

#include "common/base/check.h"
#include "kvtransfer/cuda_ipc/cuda_ipc.h"
#include "kvtransfer/nccl/nccl.h"

namespace baton::kvtransfer {

bool IsDeviceTransport(std::string_view name) { return name == "cuda_ipc" || name == "nccl"; }

absl::StatusOr<std::unique_ptr<Fabric>> MakeFabric(const std::string& name) {
  BATON_CHECK(IsDeviceTransport(name)) << name;
  return name == "nccl" ? MakeNcclFabric() : MakeCudaIpcFabric();
}

}  // namespace baton::kvtransfer
