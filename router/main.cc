#include "common/process_main.h"
#include "router/router.h"

int main(int argc, char** argv) {
  using baton::router::Router;
  return baton::ProgramMain<baton::router::RouterConfig, Router>(
      {.role = "router",
       .description = "Routes inference requests to prefill and decode workers.",
       .bind = baton::router::BindRouterConfig,
       .inspect = Router::Inspect,
       .start = Router::Start,
       .drain = [](Router& router, std::chrono::nanoseconds timeout) { router.Drain(timeout); }},
      argc, argv);
}
