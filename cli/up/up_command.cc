#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/cluster.h"
#include "cli/command.h"
#include "cli/defaults.h"
#include "cli/files.h"
#include "cli/interrupt.h"
#include "cli/json_dump.h"
#include "cli/terminal.h"
#include "cli/tls_flags.h"
#include "cli/up/cluster_file.h"
#include "common/config_file.h"
#include "common/status_macros.h"
#include "nlohmann/json.hpp"

namespace baton::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr auto kWatch = std::chrono::milliseconds(100);

struct UpOptions {
  std::string config;
  std::optional<std::string> model_dir;
  std::optional<int> prefill, decode, ranks;
  std::vector<std::string> devices;
  std::optional<std::string> device, kv_cache_dtype, index_cache_dtype;
  std::optional<std::string> listen, grpc_listen, metrics_listen;
  rpc::ClusterTls tls;
  std::vector<std::string> worker_flags, prefill_flags, decode_flags, router_flags;
  std::string log_dir;
  int restarts = 0;
  int start_timeout_s = 600;
  int stop_timeout_s = 60;
  bool json = false;
};

// Behind the file's flags: of two with one name the cluster uses the last.
void Append(std::vector<std::string>& flags, const std::vector<std::string>& more) {
  flags.insert(flags.end(), more.begin(), more.end());
}

absl::StatusOr<ClusterOptions> Merge(const UpOptions& up, FlagPlaces& places) {
  ClusterOptions cluster;
  cluster.router_flags = {absl::StrCat("--listen=", kDefaultListen),
                          absl::StrCat("--grpc-listen=", kDefaultGrpcListen),
                          absl::StrCat("--metrics-listen=", kDefaultMetricsListen)};
  if (!up.config.empty()) {
    BATON_ASSIGN_OR_RETURN(const std::string text, ReadConfigFile(up.config));
    BATON_RETURN_IF_ERROR(ReadClusterFile(text, up.config, cluster, places));
  }
  if (up.model_dir) cluster.model_dir = *up.model_dir;
  if (up.prefill) cluster.prefill = *up.prefill;
  if (up.decode) cluster.decode = *up.decode;
  if (up.ranks) cluster.ranks = *up.ranks;
  if (!up.devices.empty()) cluster.devices = up.devices;
  const auto set = [](std::vector<std::string>& flags, const char* name,
                      const std::optional<std::string>& value) {
    if (value) flags.push_back(absl::StrCat("--", name, "=", *value));
  };
  set(cluster.worker_flags, "device", up.device);
  set(cluster.worker_flags, "kv-cache-dtype", up.kv_cache_dtype);
  set(cluster.worker_flags, "index-cache-dtype", up.index_cache_dtype);
  for (std::vector<std::string>* flags : {&cluster.worker_flags, &cluster.router_flags}) {
    const auto set_given = [&](const char* name, const std::string& value) {
      if (!value.empty()) set(*flags, name, value);
    };
    set_given("tls-cert-file", up.tls.files.certificate);
    set_given("tls-key-file", up.tls.files.key);
    set_given("tls-ca-file", up.tls.files.ca);
    set_given("tls-server-name", up.tls.server_name);
  }
  set(cluster.router_flags, "listen", up.listen);
  set(cluster.router_flags, "grpc-listen", up.grpc_listen);
  set(cluster.router_flags, "metrics-listen", up.metrics_listen);
  Append(cluster.worker_flags, up.worker_flags);
  Append(cluster.prefill_flags, up.prefill_flags);
  Append(cluster.decode_flags, up.decode_flags);
  Append(cluster.router_flags, up.router_flags);
  cluster.start_timeout = std::chrono::seconds(up.start_timeout_s);
  cluster.stop_timeout = std::chrono::seconds(up.stop_timeout_s);

  if (cluster.model_dir.empty()) {
    return UsageError("no model: give --model-dir, or model_dir in the file of --config");
  }
  if (cluster.decode < 1) return UsageError("at least one decode worker is needed");
  return cluster;
}

// What follows the end of a process.
enum class Then { kItStartsAgain, kTheOthersGoOn, kAllStop };

// Says what happens, to people or, as one JSON object a line, to programs.
class Reporter {
 public:
  // `tls` is what `baton top` has to show, too.
  Reporter(bool json, tls::CertificateFiles tls)
      : json_(json), tls_(std::move(tls)), colour_(!json && UsesColour(kStdout)) {}

  void Starting(const ClusterOptions& options) const {
    if (json_) return;
    std::cout << "Starting " << Counted(options.prefill, "prefill worker") << " and "
              << Counted(options.decode, "decode worker") << " of " << options.model_dir << " ..."
              << std::endl;
  }

  void Ready(const Cluster& cluster) const {
    if (json_) {
      Json processes = Json::array();
      for (const auto& process : cluster.processes()) processes.push_back(Describe(*process));
      Emit({{"event", "ready"}, {"url", cluster.url()}, {"processes", std::move(processes)}});
      return;
    }
    Table table({"process", "pid", "address", "metrics", "log"});
    for (const auto& process : cluster.processes()) {
      const std::string http = process->address("http");
      table.AddRow({process->spec().name, absl::StrCat(process->pid()),
                    http.empty() ? process->address("grpc")
                                 : absl::StrCat(cluster.url(), ", gRPC ", process->address("grpc")),
                    process->address("metrics"), process->spec().log_path.string()});
    }
    std::cout << table.ToString(colour_)
              << Styled(absl::StrCat(
                            "Ready. `baton chat", Option("--url", cluster.url(), kDefaultUrl),
                            absl::StartsWith(cluster.url(), "https:") ? " --ca-file=FILE" : "",
                            "` asks, `baton top",
                            Option("--metrics", cluster.processes().back()->address("metrics"),
                                   kDefaultMetricsListen),
                            Option("--tls-cert-file", tls_.certificate, ""),
                            Option("--tls-key-file", tls_.key, ""),
                            Option("--tls-ca-file", tls_.ca, ""),
                            "` watches, Ctrl-C drains and stops."),
                        Style::kGreen, colour_)
              << std::endl;
  }

  void Died(const Process& process, Then then) const {
    if (json_) {
      Emit({{"event", "died"},
            {"process", process.spec().name},
            {"address", AddressOf(process)},
            {"how", process.HowItEnded()},
            {"restarting", then == Then::kItStartsAgain},
            {"serving", then == Then::kTheOthersGoOn},
            {"log_end", process.LogEnd()}});
      return;
    }
    const char* const what = then == Then::kItStartsAgain   ? "starting it again"
                             : then == Then::kTheOthersGoOn ? "the others go on"
                                                            : "all stop";
    std::cout << Styled(absl::StrCat(process.spec().name, " (", AddressOf(process), ") ended, ",
                                     process.HowItEnded(), "; ", what),
                        Style::kRed, colour_)
              << "\n"
              << Styled(Harmless(process.LogEnd()), Style::kDim, colour_) << std::endl;
  }

  void Stopping() const {
    if (!json_) std::cout << "Draining ... (Ctrl-C again to kill)" << std::endl;
  }

  void Stopped() const {
    if (json_) Emit({{"event", "stopped"}});
  }

 private:
  // By which others know it.
  static std::string AddressOf(const Process& process) {
    const std::string http = process.address("http");
    return http.empty() ? process.address("grpc") : http;
  }
  static Json Describe(const Process& process) {
    return {{"name", process.spec().name},
            {"role", process.spec().role},
            {"pid", process.pid()},
            {"http", process.address("http")},
            {"grpc", process.address("grpc")},
            {"metrics", process.address("metrics")},
            {"log", process.spec().log_path.string()}};
  }
  // That another command has to be given, unless the value is the one it has anyway.
  static std::string Option(const char* name, const std::string& value,
                            const std::string& by_default) {
    return value == by_default ? "" : absl::StrCat(" ", name, "=", value);
  }
  static void Emit(const Json& event) { std::cout << Dump(event) << std::endl; }

  const bool json_;
  const tls::CertificateFiles tls_;
  const bool colour_;
};

// Until a signal comes, or a process has ended without which nobody is served.
absl::Status Watch(Cluster& cluster, int restarts, const Reporter& reporter) {
  std::set<pid_t> ended;  // and not to be started again
  while (!Interrupts::Pending()) {
    for (const auto& process : cluster.processes()) {
      if (process->Running() || ended.contains(process->pid())) continue;
      const Then then = restarts > 0       ? Then::kItStartsAgain
                        : cluster.Serves() ? Then::kTheOthersGoOn
                                           : Then::kAllStop;
      reporter.Died(*process, then);
      if (then == Then::kAllStop) {
        return absl::UnavailableError(
            absl::StrCat(process->spec().name, " ended, ", process->HowItEnded()));
      }
      ended.insert(process->pid());
      if (then == Then::kTheOthersGoOn) continue;
      --restarts;
      const absl::Status restarted = cluster.Restart(*process, Interrupts::Pending);
      if (Interrupts::Pending()) return absl::OkStatus();
      BATON_RETURN_IF_ERROR(restarted);
      reporter.Ready(cluster);
      break;  // the list has changed
    }
    std::this_thread::sleep_for(kWatch);
  }
  return absl::OkStatus();
}

absl::StatusOr<fs::path> LogFolder(const std::string& given) {
  if (given.empty()) return MakeTemporaryFolder("baton");
  std::error_code error;
  fs::create_directories(given, error);
  if (!error) return fs::path(given);
  return absl::UnavailableError(absl::StrCat("log folder ", given, ": ", error.message()));
}

absl::Status Serve(ClusterOptions options, const UpOptions& up, const Reporter& reporter) {
  const Interrupts interrupts({SIGINT, SIGTERM});
  reporter.Starting(options);
  ProgressBar waiting("loading the model", "", 0);
  BATON_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                         Cluster::Start(std::move(options), [&waiting] {
                           waiting.Update(0);
                           return Interrupts::Pending();
                         }));
  waiting.Clear();
  reporter.Ready(*cluster);
  const absl::Status watched = Watch(*cluster, up.restarts, reporter);
  reporter.Stopping();
  const int before = Interrupts::Count();
  const absl::Status stopped = cluster->Stop([before] { return Interrupts::Count() > before; });
  reporter.Stopped();
  return watched.ok() ? stopped : watched;
}

bool HasLogs(const fs::path& folder) {
  std::error_code ignored;
  return std::ranges::any_of(fs::directory_iterator(folder, ignored), [](const auto& log) {
    std::error_code error;
    return log.file_size(error) > 0 && !error;
  });
}

absl::Status Run(const UpOptions& up) {
  FlagPlaces places;
  BATON_ASSIGN_OR_RETURN(ClusterOptions options, Merge(up, places));
  BATON_ASSIGN_OR_RETURN(options.log_dir, LogFolder(up.log_dir));
  const fs::path log_dir = options.log_dir;
  const absl::Status status =
      WithPlaces(Serve(std::move(options), up, Reporter(up.json, up.tls.files)), places);
  if (!up.log_dir.empty()) return status;
  const bool failed = !status.ok() && !absl::IsCancelled(status);
  if (failed && HasLogs(log_dir)) {
    return absl::Status(status.code(),
                        absl::StrCat(status.message(), "\nall logs are in ", log_dir.string()));
  }
  std::error_code ignored;
  fs::remove_all(log_dir, ignored);
  return status;
}

}  // namespace

Command AddUp(CLI::App& app) {
  auto options = std::make_shared<UpOptions>();
  CLI::App* command = app.add_subcommand(
      "up", "Starts a router and its workers on this machine and keeps them until Ctrl-C.");
  command->add_option("--config", options->config, "YAML file of the cluster; flags win")
      ->type_name("FILE");
  command->add_option("--model-dir", options->model_dir, "directory of the checkpoint");
  command->add_option("--prefill", options->prefill, "prefill workers [default 1]")
      ->check(InRange(0, kMaxWorkers));
  command->add_option("--decode", options->decode, "decode workers [default 1]")
      ->check(InRange(1, kMaxWorkers));
  command
      ->add_option("--ranks", options->ranks,
                   "processes of a worker, which share the model's experts [default 1]")
      ->check(InRange(1, 64));
  command->add_option("--device", options->device,
                      "what computes in the workers: cpu, or cuda in builds with CUDA");
  AddList(command, "--devices", options->devices,
          "CUDA devices, such as 0,1,2,3; each worker process gets one, in turn [default: all see "
          "all]")
      ->delimiter(',');
  command->add_option("--kv-cache-dtype", options->kv_cache_dtype,
                      "storage of compressed KV entries: bf16 or fp8");
  command->add_option("--index-cache-dtype", options->index_cache_dtype,
                      "storage of index keys: bf16, fp8 or fp4");
  command->add_option(
      "--listen", options->listen,
      absl::StrCat("host:port of the HTTP API; port 0 picks one [default ", kDefaultListen, "]"));
  command->add_option("--grpc-listen", options->grpc_listen,
                      absl::StrCat("host:port of the gRPC API [default ", kDefaultGrpcListen, "]"));
  command->add_option(
      "--metrics-listen", options->metrics_listen,
      absl::StrCat("host:port of the router's metrics [default ", kDefaultMetricsListen, "]"));
  AddClusterTls(command, options->tls);
  AddList(command, "--worker-flag", options->worker_flags,
          "flag of every worker, such as --worker-flag=--pages=64; may be repeated");
  AddList(command, "--prefill-flag", options->prefill_flags, "flag of prefill workers");
  AddList(command, "--decode-flag", options->decode_flags, "flag of decode workers");
  AddList(command, "--router-flag", options->router_flags, "flag of the router");
  command
      ->add_option("--log-dir", options->log_dir,
                   "folder for the logs; by default a temporary one, kept only after a failure")
      ->type_name("FOLDER");
  AddOption(command, "--restarts", options->restarts,
            "how many ends of processes are answered by starting them again; later ones stop all "
            "once the router or the last worker of a role has ended")
      ->check(InRange(0, 1000000));
  AddOption(command, "--start-timeout", options->start_timeout_s, "in seconds")
      ->check(InRange(1, 86400));
  AddOption(command, "--stop-timeout", options->stop_timeout_s,
            "in seconds; what drains longer is killed")
      ->check(InRange(1, 86400));
  command->add_flag("--json", options->json, "report events as JSON, one a line");
  return {.app = command, .run = [options] { return Run(*options); }};
}

}  // namespace baton::cli
