#include "kvtransfer/nccl/nccl.h"

namespace baton::kvtransfer {

absl::StatusOr<std::unique_ptr<Fabric>> MakeNcclFabric() {
  return absl::UnavailableError("transport nccl: this binary was built without CUDA");
}

}  // namespace baton::kvtransfer
