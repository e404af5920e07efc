#include "kvtransfer/cuda_ipc/cuda_ipc.h"

namespace baton::kvtransfer {

absl::StatusOr<std::unique_ptr<Fabric>> MakeCudaIpcFabric() {
  return absl::UnavailableError("transport cuda_ipc: this binary was built without CUDA");
}

}  // namespace baton::kvtransfer
