#include "common/process_main.h"
#include "router/router.h"

int main(int argc, char** argv) {
  using baton::router::Router;
  using Config = Router::Config;
  return baton::ProgramMain<Router>(
      {.role = "router",
       .description = "Routes inference requests to prefill and decode workers.",
       .bind = baton::router::BindRouterConfig,
       .log_level = [](const Config& config) -> const std::string& { return config.log_level; },
       .drain = [](Router& router, const Config& config) { router.Drain(config.drain_timeout); }},
      argc, argv);
}
