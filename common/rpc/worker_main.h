#pragma once

#include <chrono>
#include <string>
#include <thread>

#include "common/process_main.h"

// main() of a worker:
//
//   int main(int argc, char** argv) {
//     return baton::rpc::WorkerMain<DecodeWorker>(
//         {.role = "decode", .description = "...", .bind = BindDecodeConfig}, argc, argv);
//   }
//
// Its Config has a WorkerHostConfig `host`; it has Drain(timeout) and Stop().

namespace baton::rpc {

template <typename Worker>
void DrainWorker(Worker& worker, const typename Worker::Config& config) {
  const auto draining_since = std::chrono::steady_clock::now();
  if (!worker.Drain(config.host.drain_timeout)) spdlog::warn("not drained in time: cancelling");
  // Routers ask every half second: requests that meet a worker before they know must find it
  // draining, not gone, which looks like a crash.
  constexpr std::chrono::seconds kNoticed{1};
  std::this_thread::sleep_until(draining_since + kNoticed);
  worker.Stop();
}

template <typename Worker>
int WorkerMain(Program<Worker> program, int argc, const char* const* argv) {
  using Config = typename Worker::Config;
  program.log_level = [](const Config& config) -> const std::string& {
    return config.host.log_level;
  };
  program.drain = DrainWorker<Worker>;
  return ProgramMain(program, argc, argv);
}

}  // namespace baton::rpc
