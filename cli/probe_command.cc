#include <chrono>
#include <iostream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "cli/command.h"
#include "cli/tls_flags.h"
#include "common/host_port.h"
#include "common/rpc/worker_control_client.h"
#include "common/status_macros.h"

namespace baton::cli {
namespace {

struct ProbeOptions {
  std::string address;
  double timeout_s = 2;
  rpc::ClusterTls tls;
};

absl::Status Run(const ProbeOptions& options) {
  if (const absl::Status status = ParseHostPort(options.address).status(); !status.ok()) {
    return UsageError(absl::StrCat("worker: ", status.message()));
  }
  BATON_ASSIGN_OR_RETURN(const rpc::Credentials credentials, rpc::LoadCredentials(options.tls));
  const rpc::WorkerControlClient worker(options.address, credentials);
  const auto timeout = std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(options.timeout_s));
  const absl::StatusOr<v1::GetInfoResponse> info = worker.GetInfo(timeout);
  if (absl::IsUnimplemented(info.status())) {
    return absl::FailedPreconditionError(absl::StrCat(options.address, " answers, as no worker"));
  }
  BATON_RETURN_IF_ERROR(info.status());
  if (!info->ready()) {
    return absl::UnavailableError(absl::StrCat(options.address, " is not ready: it is draining"));
  }
  std::cout << options.address << " is ready" << std::endl;
  return absl::OkStatus();
}

}  // namespace

Command AddProbe(CLI::App& app) {
  auto options = std::make_shared<ProbeOptions>();
  CLI::App* command = app.add_subcommand(
      "probe",
      "Exits with 0 if a worker is ready to serve, with 1 if not: for health checks that know no "
      "gRPC or no TLS.");
  command->add_option("worker", options->address, "the worker's host:port of gRPC")->required();
  AddOption(command, "--timeout", options->timeout_s, "seconds to wait for its answer, from 0.1")
      ->check(InRange(0.1, 60.0));
  AddClusterTls(command, options->tls);
  return {.app = command, .run = [options] { return Run(*options); }};
}

}  // namespace baton::cli
