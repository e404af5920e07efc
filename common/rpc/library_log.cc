#include "common/rpc/library_log.h"

#include <chrono>
#include <mutex>

#include "absl/strings/match.h"
#include "common/log.h"
#include "common/log_limit.h"
#include "grpc/support/log.h"

namespace baton::rpc {
namespace {

// Somebody whose certificate is refused tries again and again.
constexpr std::chrono::seconds kBetweenWarnings{10};

// What only the library knows: the status of a call does not say it where the other end refused.
void Log(gpr_log_func_args* args) {
  static LogLimit limit(1, kBetweenWarnings);
  const bool of_tls = absl::EndsWith(args->file, "ssl_transport_security.cc");
  if (of_tls && args->severity == GPR_LOG_SEVERITY_ERROR && limit.Next()) {
    spdlog::warn("TLS: {}", args->message);
  } else {
    spdlog::debug("gRPC, {}:{}: {}", args->file, args->line, args->message);
  }
}

}  // namespace

void QuietLibraryLog() {
  static std::once_flag once;
  std::call_once(once, [] { gpr_set_log_function(Log); });
}

}  // namespace baton::rpc
