#pragma once

#include <chrono>
#include <cstdio>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/config.h"
#include "common/log.h"
#include "common/shutdown_signal.h"
#include "common/status_macros.h"
#include "spdlog/spdlog.h"

// main() of a worker: configure, start, say where, run until SIGTERM, drain.
//
//   int main(int argc, char** argv) {
//     return baton::rpc::WorkerMain<DecodeWorker>(
//         {.role = "decode", .description = "...", .bind = BindDecodeConfig}, argc, argv);
//   }
//
// A Worker has Config (with a WorkerHostConfig `host`), Start(config), ListeningLine(),
// Drain(timeout) and Stop().

namespace baton::rpc {

template <typename Config>
struct WorkerProgram {
  std::string role;  // the binary is baton-<role>
  std::string description;
  void (*bind)(Config&, ConfigParser&);
};

template <typename Worker>
absl::Status RunWorker(const WorkerProgram<typename Worker::Config>& program, int argc,
                       const char* const* argv) {
  typename Worker::Config config;
  ConfigParser parser("baton-" + program.role, program.description);
  program.bind(config, parser);
  BATON_ASSIGN_OR_RETURN(const ParseOutcome outcome, parser.Parse(argc, argv));
  if (outcome == ParseOutcome::kExit) return absl::OkStatus();
  BATON_RETURN_IF_ERROR(InitLogging(program.role, config.host.log_level));
  for (const std::string& line : parser.Describe()) spdlog::info("{}", line);

  ShutdownSignal shutdown;  // before any thread
  BATON_ASSIGN_OR_RETURN(const auto worker, Worker::Start(config));
  std::printf("%s\n", worker->ListeningLine().c_str());
  std::fflush(stdout);

  spdlog::info("signal {}: draining", shutdown.Wait());
  const auto draining_since = std::chrono::steady_clock::now();
  if (!worker->Drain(config.host.drain_timeout)) spdlog::warn("not drained in time: cancelling");
  // Routers ask every half second: requests that meet a worker before they know must find it
  // draining, not gone, which looks like a crash.
  constexpr std::chrono::seconds kNoticed{1};
  std::this_thread::sleep_until(draining_since + kNoticed);
  worker->Stop();
  return absl::OkStatus();
}

template <typename Worker>
int WorkerMain(const WorkerProgram<typename Worker::Config>& program, int argc,
               const char* const* argv) {
  const absl::Status status = RunWorker<Worker>(program, argc, argv);
  if (status.ok()) return 0;
  std::fprintf(stderr, "baton-%s: %s\n", program.role.c_str(),
               std::string(status.message()).c_str());
  return 1;
}

}  // namespace baton::rpc
