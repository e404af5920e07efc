#include "kvtransfer/nccl/nccl_library.h"

#include <dlfcn.h>

#include "absl/strings/str_cat.h"

namespace baton::kvtransfer::nccl {
namespace {

constexpr const char* kFile = "libnccl.so.2";
// The first release whose non-blocking communicators can be aborted at any time.
constexpr int kOldest = NCCL_VERSION(2, 18, 0);

absl::StatusOr<const Library*> LoadOnce() {
  void* const library = dlopen(kFile, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return absl::UnavailableError(absl::StrCat("transport nccl needs ", kFile, ": ", dlerror()));
  }
  static Library all;
  absl::Status missing;
  const auto find = [&](const char* name, auto* function) {
    *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(dlsym(library, name));
    if (*function == nullptr && missing.ok()) {
      missing = absl::UnavailableError(absl::StrCat(kFile, " has no ", name));
    }
  };
  find("ncclGetVersion", &all.get_version);
  find("ncclGetErrorString", &all.error_string);
  find("ncclGetLastError", &all.last_error);
  find("ncclGetUniqueId", &all.get_unique_id);
  find("ncclCommInitRankConfig", &all.init);
  find("ncclCommGetAsyncError", &all.async_error);
  find("ncclCommAbort", &all.abort);
  find("ncclSend", &all.send);
  find("ncclRecv", &all.receive);
  if (!missing.ok()) return missing;
  int version = 0;
  if (all.get_version(&version) != ncclSuccess || version < kOldest) {
    return absl::UnavailableError(
        absl::StrCat(kFile, " is release ", version, ", needed is at least ", kOldest));
  }
  return &all;
}

}  // namespace

absl::StatusOr<const Library*> Load() {
  static const absl::StatusOr<const Library*> loaded = LoadOnce();
  return loaded;
}

}  // namespace baton::kvtransfer::nccl
