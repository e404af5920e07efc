#include "common/rpc/library_log.h"

#include <mutex>

#include "common/log.h"
#include "grpc/support/log.h"

namespace baton::rpc {

void QuietLibraryLog() {
  static std::once_flag once;
  std::call_once(once, [] {
    gpr_set_log_function([](gpr_log_func_args* args) {
      spdlog::debug("gRPC, {}:{}: {}", args->file, args->line, args->message);
    });
  });
}

}  // namespace baton::rpc
