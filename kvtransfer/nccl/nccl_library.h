#pragma once

#include <memory>

#include <nccl.h>

#include "absl/status/statusor.h"

namespace baton::kvtransfer::nccl {

// The functions of libnccl.so.2, loaded when transport nccl is asked for: a worker without it runs
// with the other transports. Never unloaded.
struct Library {
  decltype(&ncclGetVersion) get_version = nullptr;
  decltype(&ncclGetErrorString) error_string = nullptr;
  decltype(&ncclGetLastError) last_error = nullptr;
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclCommInitRankConfig) init = nullptr;
  decltype(&ncclCommGetAsyncError) async_error = nullptr;
  decltype(&ncclCommAbort) abort = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) receive = nullptr;
};

// UNAVAILABLE naming what is missing: the library, a function, or a release that is recent enough.
absl::StatusOr<const Library*> Load();

}  // namespace baton::kvtransfer::nccl
