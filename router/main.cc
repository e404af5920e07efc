#include <iostream>

#include "common/config.h"
#include "common/log.h"
#include "common/shutdown_signal.h"
#include "common/status_macros.h"
#include "router/config.h"
#include "router/router.h"

namespace baton::router {
namespace {

absl::Status Run(int argc, char** argv) {
  RouterConfig config;
  ConfigParser parser("baton-router", "Routes inference requests to prefill and decode workers.");
  BindRouterConfig(config, parser);
  BATON_ASSIGN_OR_RETURN(const ParseOutcome outcome, parser.Parse(argc, argv));
  if (outcome == ParseOutcome::kExit) return absl::OkStatus();
  BATON_RETURN_IF_ERROR(InitLogging("router", config.log_level));
  for (const std::string& line : parser.Describe()) spdlog::info("config: {}", line);

  ShutdownSignal shutdown;
  BATON_ASSIGN_OR_RETURN(const std::unique_ptr<Router> router, Router::Start(config));
  std::cout << router->ListeningLine() << std::endl;

  const int signal = shutdown.Wait();
  spdlog::info("signal {}: draining", signal);
  router->Drain(config.drain_timeout);
  return absl::OkStatus();
}

}  // namespace
}  // namespace baton::router

int main(int argc, char** argv) {
  const absl::Status status = baton::router::Run(argc, argv);
  if (status.ok()) return 0;
  std::cerr << "baton-router: " << status.message() << std::endl;
  return 1;
}
