#include "worker/config.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/host_port.h"
#include "engine/engine.h"
#include "engine/model_identity.h"
#include "kvtransfer/manifest.h"

namespace baton::worker {
namespace {

// As long as that of a host or a pod may be, and harmless wherever it is shown.
bool IsName(const std::string& text) {
  return text.size() <= 253 && std::all_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_isalnum(c) || absl::StrContains("-_.@", c);
         });
}

// INVALID_ARGUMENT: others would be told an address that they cannot connect to.
absl::Status CheckAdvertised(const WorkerConfig& config) {
  if (!config.advertise.empty()) {
    const absl::StatusOr<HostPort> advertised = ParseHostPort(config.advertise);
    if (advertised.ok() && !IsAnyAddress(advertised->host) && advertised->port != 0) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(
        absl::StrCat("advertise is ", config.advertise, ", which nobody can connect to"));
  }
  if (!IsAnyAddress(HostPart(config.listen))) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("listen is ", config.listen,
                   ", which other processes cannot connect to: set advertise to host:port"));
}

}  // namespace

void BindWorkerConfig(WorkerConfig& config, ConfigParser& parser) {
  parser.Group("Network");
  const auto nothing_or_address = [](const std::string& text) {
    return text.empty() || IsHostPort(text);
  };
  parser.Add("listen", &config.listen, "host:port to serve gRPC on; port 0 picks one")
      .Format("host:port", IsHostPort);
  parser
      .Add("advertise", &config.advertise,
           "host:port at which other processes reach this one; default: the address listened on")
      .Format("host:port or nothing", nothing_or_address);
  parser
      .Add("name", &config.name,
           "what people call this worker in `baton top`, `baton chat --stats`, /health and the "
           "router's log; empty: by its address")
      .Format("up to 253 letters, digits and any of -_.@, or nothing", IsName);
  parser
      .Add("metrics-listen", &config.metrics_listen,
           "host:port to serve Prometheus metrics on; port 0 picks one, empty: not served")
      .Format("host:port or nothing", nothing_or_address);
  parser.Add(
      "transports", &config.transports,
      "transports of hand-offs, best first: cuda_ipc and shm (within one machine), nccl, grpc");
  BindClusterTls(config.tls, parser);
  parser.Group("Process");
  parser.Add("log-level", &config.log_level, "how much is logged to stderr")
      .OneOf({"trace", "debug", "info", "warning", "error", "off"});
  parser.Add("drain-timeout", &config.drain_timeout,
             "how long SIGTERM waits for requests that run before it cancels them");
  engine::BindOptions(config.engine, parser);
  kvtransfer::BindFaults(config.faults, parser);
  parser.Check([&config](ErrorList& errors) {
    errors.Add(CheckAdvertised(config));
    const bool meets_ranks =
        config.engine.expert_parallel_size > 1 && config.engine.expert_parallel_rank == 0;
    errors.Add(CheckListensApart(
        {{"listen", config.listen},
         {"metrics-listen", config.metrics_listen},
         {"expert-parallel-address", meets_ranks ? config.engine.expert_parallel_address : ""}}));
  });
}

void InspectConfig(const WorkerConfig& config, ErrorList& errors) {
  errors.Add(rpc::LoadCredentials(config.tls).status());
  errors.Add(kvtransfer::LoadFaults(config.faults).status());
  const absl::Status transports =
      kvtransfer::CheckTransportNames(config.transports, config.engine.device);
  if (!transports.ok()) {
    errors.Add(absl::Status(transports.code(), absl::StrCat("transports: ", transports.message())));
  }
  if (config.engine.model_dir.empty()) return;  // which has been told
  const absl::StatusOr<engine::EngineOptions> options = engine::MakeEngineOptions(config.engine);
  errors.Add(options.status());
  if (options.ok()) engine::Engine::Check(*options, errors);
  errors.Add(engine::ReadModelIdentity(config.engine.model_dir).status());
}

}  // namespace baton::worker
