#include "kernels/runtime/nccl_library.h"

#include <type_traits>

#include <dlfcn.h>

namespace baton::kernels::nccl {

namespace {

constexpr const char* kFile = "libnccl.so.2";
constexpr int kOldest = 21800;

}  // namespace

const Library& Library::Get() {
  static const Library library;
  return library;
}

Library::Library() {
  void* const handle = dlopen(kFile, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    missing = std::string("NCCL cannot be loaded: ") + dlerror();
    return;
  }
  const auto find = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(handle, name));
    if (function == nullptr && missing.empty()) missing = std::string(kFile) + " has no " + name;
  };
  find("ncclGetVersion", get_version);
  find("ncclGetUniqueId", get_unique_id);
  find("ncclCommInitRankConfig", comm_init);
  find("ncclCommAbort", comm_abort);
  find("ncclCommGetAsyncError", async_error);
  find("ncclGroupStart", group_start);
  find("ncclGroupEnd", group_end);
  find("ncclSend", send);
  find("ncclRecv", recv);
  find("ncclGetErrorString", error_string);
  find("ncclGetLastError", last_error);
  if (!missing.empty()) return;
  int version = 0;
  if (get_version(&version) != kSuccess || version < kOldest) {
    missing = std::string(kFile) + " is release " + std::to_string(version) +
              ", needed is at least " + std::to_string(kOldest);
  }
}

std::string Describe(const char* call, Result result, Comm comm) {
  const Library& nccl = Library::Get();
  return std::string(call) + ": " + nccl.error_string(result) + " (" + nccl.last_error(comm) + ")";
}

}  // namespace baton::kernels::nccl
