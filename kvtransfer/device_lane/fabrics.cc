#include "kvtransfer/device_lane/fabrics.h"

#include "common/base/check.h"
#include "kvtransfer/cuda_ipc/cuda_ipc.h"
#include "kvtransfer/manifest.h"
#include "kvtransfer/nccl/nccl.h"

namespace baton::kvtransfer {

absl::StatusOr<std::unique_ptr<Fabric>> MakeFabric(const std::string& name) {
  BATON_CHECK(IsDeviceTransport(name)) << name;
  return name == "nccl" ? MakeNcclFabric() : MakeCudaIpcFabric();
}

}  // namespace baton::kvtransfer
