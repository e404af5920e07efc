#pragma once

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_join.h"
#include "common/config.h"
#include "common/error_list.h"
#include "common/log.h"
#include "common/shutdown_signal.h"
#include "common/status_macros.h"
#include "spdlog/spdlog.h"

// main() of a server: configure, start, say where, run until SIGTERM or SIGINT, drain. A Config has
// log_level and drain_timeout, a Server has ListeningLine().

namespace baton {

template <typename Config, typename Server>
struct Program {
  std::string role;  // the binary is baton-<role>
  std::string description;
  void (*bind)(Config&, ConfigParser&) = nullptr;
  // What `start` would find wrong, without ports and weights: for --check-config.
  void (*inspect)(const Config&, ErrorList& errors) = nullptr;
  absl::StatusOr<std::unique_ptr<Server>> (*start)(const Config&) = nullptr;
  // After the signal: until nothing runs any more, or may.
  void (*drain)(Server&, std::chrono::nanoseconds timeout) = nullptr;
};

template <typename Config, typename Server>
absl::Status RunProgram(const Program<Config, Server>& program, int argc, const char* const* argv) {
  Config config;
  ConfigParser parser("baton-" + program.role, program.description);
  program.bind(config, parser);
  parser.Inspect([&](ErrorList& errors) {
    errors.Add(InitLogging(program.role, "warning"));
    program.inspect(config, errors);
  });
  BATON_ASSIGN_OR_RETURN(const ParseOutcome outcome, parser.Parse(argc, argv));
  if (outcome == ParseOutcome::kExit) return absl::OkStatus();
  BATON_RETURN_IF_ERROR(InitLogging(program.role, config.log_level));
  spdlog::info("settings: {}", absl::StrJoin(parser.DescribeChanged(), ", "));
  for (const std::string& line : parser.Describe()) spdlog::debug("setting: {}", line);

  ShutdownSignal shutdown;  // before any thread
  std::unique_ptr<Server> server;
  {
    const EndAtShutdownSignal end(shutdown, [](int signal) {
      spdlog::info("signal {}: ends before it has started", signal);
    });
    BATON_ASSIGN_OR_RETURN(server, program.start(config));
  }
  std::printf("%s\n", server->ListeningLine().c_str());
  std::fflush(stdout);

  spdlog::info("signal {}: draining", shutdown.Wait());
  program.drain(*server, config.drain_timeout);  // warns of what it cancels
  spdlog::info("drained: ends");
  return absl::OkStatus();
}

template <typename Config, typename Server>
int ProgramMain(const Program<Config, Server>& program, int argc, const char* const* argv) {
  const absl::Status status = RunProgram(program, argc, argv);
  if (status.ok()) return 0;
  std::fprintf(stderr, "baton-%s: %s\n", program.role.c_str(),
               std::string(status.message()).c_str());
  return 1;
}

}  // namespace baton
