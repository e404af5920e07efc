#include "cli/cluster.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "boost/asio/io_context.hpp"
#include "boost/asio/ip/tcp.hpp"
#include "cli/files.h"
#include "cli/http_client.h"
#include "common/config_file.h"
#include "common/host_port.h"
#include "common/status_macros.h"
#include "yaml-cpp/yaml.h"

namespace baton::cli {
namespace {

constexpr absl::string_view kMeeting = "--expert-parallel-address=";  // where ranks meet
constexpr char kApiCertificate[] = "api-tls-cert-file";
constexpr auto kHealthPoll = std::chrono::milliseconds(50);

bool Has(const std::vector<std::string>& flags, absl::string_view name) {
  for (const std::string& flag : flags) {
    if (absl::StartsWith(flag, absl::StrCat("--", name, "="))) return true;
  }
  return false;
}

// Of the last flag of that name; empty if there is none.
std::string ValueOf(const std::vector<std::string>& flags, absl::string_view name) {
  std::string value;
  for (const std::string& flag : flags) {
    absl::string_view rest = flag;
    if (absl::ConsumePrefix(&rest, absl::StrCat("--", name, "="))) value = std::string(rest);
  }
  return value;
}

// A flag and its value may be two words of the list, "--name" and "value", which are one here.
std::vector<std::string> Joined(const std::vector<std::string>& words) {
  std::vector<std::string> flags;
  for (const std::string& word : words) {
    const bool value =
        !absl::StartsWith(word, "--") && !flags.empty() && !absl::StrContains(flags.back(), '=');
    if (value) {
      absl::StrAppend(&flags.back(), "=", word);
    } else {
      flags.push_back(word);
    }
  }
  return flags;
}

// What the file of --config says of an option; empty if nothing, or if it cannot be read: the
// program that it is for says why.
std::string ValueInFile(const std::string& path, const std::string& name) {
  const absl::StatusOr<std::string> text = ReadConfigFile(path);
  if (!text.ok()) return "";
  const absl::StatusOr<YAML::Node> root = ParseConfigText(*text, path);
  if (!root.ok() || !root->IsMap()) return "";
  for (const auto& entry : *root) {
    if (!entry.first.IsScalar() || !entry.second.IsScalar()) continue;
    if (absl::StrReplaceAll(entry.first.Scalar(), {{"_", "-"}}) == name) {
      return entry.second.Scalar();
    }
  }
  return "";
}

// Of flags with the same name the last.
std::vector<std::string> LastOfEach(const std::vector<std::string>& flags) {
  const auto name = [](const std::string& flag) { return flag.substr(0, flag.find('=')); };
  std::vector<std::string> kept;
  for (const std::string& flag : flags) {
    std::erase_if(kept, [&](const std::string& earlier) { return name(earlier) == name(flag); });
    kept.push_back(flag);
  }
  return kept;
}

ProcessSpec Spec(const ClusterOptions& options, const std::string& role, const std::string& name,
                 std::vector<std::string> flags, std::vector<std::string> listens) {
  flags = LastOfEach(flags);
  for (const std::string& listen : listens) {
    if (!Has(flags, listen)) flags.push_back(absl::StrCat("--", listen, "=127.0.0.1:0"));
  }
  if (!Has(flags, "model-dir")) flags.push_back(absl::StrCat("--model-dir=", options.model_dir));
  return {.name = name,
          .role = role,
          .binary = ProgramIn(options.binaries.empty() ? OwnFolder() : options.binaries, role),
          .flags = std::move(flags),
          .log_path = options.log_dir / absl::StrCat(name, ".log")};
}

// host:port of this machine at which nobody listens, for as long as nobody takes it.
absl::StatusOr<std::string> FreeAddress() try {
  boost::asio::io_context context;
  const boost::asio::ip::tcp::endpoint any(boost::asio::ip::address_v4::loopback(), 0);
  const boost::asio::ip::tcp::acceptor probe(context, any);
  return absl::StrCat("127.0.0.1:", probe.local_endpoint().port());
} catch (const boost::system::system_error& error) {
  return absl::UnavailableError(absl::StrCat("no address for ranks to meet at: ", error.what()));
}

// An error if the router could not listen where its flags say: it would find out only after all
// workers have loaded the model.
absl::Status CheckRouterCanListen(const std::vector<std::string>& flags) {
  using boost::asio::ip::tcp;
  for (const char* name : {"listen", "grpc-listen", "metrics-listen"}) {
    if (!Has(flags, name)) continue;
    const std::string given = ValueOf(flags, name);
    const absl::StatusOr<HostPort> address = ParseHostPort(given);
    BATON_RETURN_IF_ERROR(address.status()) << "the router's --" << name;
    boost::asio::io_context context;
    boost::system::error_code error;
    const auto found = tcp::resolver(context).resolve(
        address->host, absl::StrCat(address->port),
        tcp::resolver::passive | tcp::resolver::numeric_service, error);
    tcp::acceptor probe(context);
    if (!error) probe.open(found->endpoint().protocol(), error);
    if (!error) probe.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) probe.bind(found->endpoint(), error);
    if (error) {
      return absl::UnavailableError(
          absl::StrCat("the router cannot listen on --", name, "=", given, ": ", error.message()));
    }
  }
  return absl::OkStatus();
}

// Those of a role, behind `specs`: what follows from their places is filled in.
absl::Status AddWorkers(const ClusterOptions& options, const std::string& role, int count,
                        const std::vector<std::string>& own_flags,
                        std::vector<ProcessSpec>& specs) {
  for (int worker = 0; worker < count; ++worker) {
    std::vector<std::string> flags = options.worker_flags;
    flags.insert(flags.end(), own_flags.begin(), own_flags.end());
    const int group = static_cast<int>(specs.size());
    if (options.ranks > 1) {
      BATON_ASSIGN_OR_RETURN(const std::string meeting, FreeAddress());
      flags.push_back(absl::StrCat("--expert-parallel-size=", options.ranks));
      flags.push_back(absl::StrCat(kMeeting, meeting));
    }
    for (int rank = 0; rank < options.ranks; ++rank) {
      std::string name = absl::StrCat(role, "-", worker);
      if (options.ranks > 1) absl::StrAppend(&name, "-rank-", rank);
      ProcessSpec spec = Spec(options, role, name, flags, {"listen", "metrics-listen"});
      if (!Has(flags, "name")) spec.flags.push_back(absl::StrCat("--name=", name));
      if (options.ranks > 1) {
        spec.flags.push_back(absl::StrCat("--expert-parallel-rank=", rank));
      }
      if (!options.devices.empty()) {
        const std::string& device = options.devices[specs.size() % options.devices.size()];
        spec.environment.push_back(absl::StrCat("CUDA_VISIBLE_DEVICES=", device));
      }
      spec.group = group;
      specs.push_back(std::move(spec));
    }
  }
  return absl::OkStatus();
}

// Whether it could not listen: somebody was faster.
bool LostItsAddress(const Process& process) {
  return absl::StrContains(process.LogEnd(), std::strerror(EADDRINUSE));
}

// The same process with the addresses that it has by now; its ranks meet at another.
ProcessSpec Again(const Process& process, const std::string& meeting) {
  ProcessSpec spec = process.spec();
  const bool router = spec.role == "router";
  const std::pair<const char*, const char*> listens[] = {{"--listen=", router ? "http" : "grpc"},
                                                         {"--metrics-listen=", "metrics"},
                                                         {"--grpc-listen=", "grpc"}};
  for (std::string& given : spec.flags) {
    if (absl::StartsWith(given, kMeeting)) given = absl::StrCat(kMeeting, meeting);
    for (const auto& [flag, kind] : listens) {
      const std::string address = process.address(kind);
      if (absl::StartsWith(given, flag) && !address.empty()) given = absl::StrCat(flag, address);
    }
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Cluster>> Cluster::Start(ClusterOptions options,
                                                        const std::function<bool()>& cancelled) {
  for (auto* flags : {&options.worker_flags, &options.prefill_flags, &options.decode_flags,
                      &options.router_flags}) {
    *flags = Joined(*flags);
  }
  std::unique_ptr<Cluster> cluster(new Cluster(std::move(options)));
  BATON_RETURN_IF_ERROR(cluster->StartAll(cancelled));
  return cluster;
}

Cluster::~Cluster() = default;

absl::Status Cluster::StartAll(const std::function<bool()>& cancelled) {
  BATON_RETURN_IF_ERROR(CheckRouterCanListen(options_.router_flags));
  std::vector<ProcessSpec> specs;
  BATON_RETURN_IF_ERROR(
      AddWorkers(options_, "prefill", options_.prefill, options_.prefill_flags, specs));
  BATON_RETURN_IF_ERROR(
      AddWorkers(options_, "decode", options_.decode, options_.decode_flags, specs));
  for (ProcessSpec& spec : specs) {
    if (cancelled && cancelled()) return absl::CancelledError("interrupted");
    BATON_ASSIGN_OR_RETURN(std::unique_ptr<Process> worker, Process::Start(std::move(spec)));
    processes_.push_back(std::move(worker));
  }
  std::vector<std::string> prefill, decode;
  BATON_RETURN_IF_ERROR(AwaitWorkers(cancelled));
  for (const std::unique_ptr<Process>& worker : processes_) {
    (worker->spec().role == "prefill" ? prefill : decode).push_back(worker->address("grpc"));
  }
  std::vector<std::string> flags = options_.router_flags;
  flags.push_back(absl::StrCat("--prefill-workers=", absl::StrJoin(prefill, ",")));
  flags.push_back(absl::StrCat("--decode-workers=", absl::StrJoin(decode, ",")));
  BATON_ASSIGN_OR_RETURN(std::unique_ptr<Process> router,
                         Process::Start(Spec(options_, "router", "router", std::move(flags),
                                             {"listen", "grpc-listen", "metrics-listen"})));
  processes_.push_back(std::move(router));
  BATON_RETURN_IF_ERROR(processes_.back()->AwaitAddresses(options_.start_timeout, cancelled));
  return WaitReady(cancelled);
}

absl::Status Cluster::AwaitWorkers(const std::function<bool()>& cancelled) {
  std::set<int> moved;                              // groups that have been started a second time
  for (size_t i = 0; i < processes_.size(); ++i) {  // Restart replaces elements
    absl::Status up = processes_[i]->AwaitAddresses(options_.start_timeout, cancelled);
    if (!up.ok() && options_.ranks > 1 && LostItsAddress(*processes_[i]) &&
        moved.insert(processes_[i]->spec().group).second) {
      up = Restart(*processes_[i], cancelled);
    }
    BATON_RETURN_IF_ERROR(up);
  }
  return absl::OkStatus();
}

absl::Status Cluster::WaitReady(const std::function<bool()>& cancelled) {
  const auto deadline = std::chrono::steady_clock::now() + options_.start_timeout;
  BATON_ASSIGN_OR_RETURN(Url address, ParseUrl(url()));
  HttpClient client(std::move(address), {.silence_timeout = std::chrono::seconds(5),
                                         .cancelled = cancelled,
                                         .ca_file = ApiCertificate(),
                                         .any_name = true});
  while (true) {
    const absl::StatusOr<HttpResponse> health = client.Get("/health");
    if (health.ok() && health->ok()) return absl::OkStatus();
    if (absl::IsInvalidArgument(health.status())) return health.status();  // and stays so
    if (cancelled && cancelled()) return absl::CancelledError("interrupted");
    for (const std::unique_ptr<Process>& process : processes_) {
      if (process->Running()) continue;
      return absl::UnavailableError(absl::StrCat(process->spec().name, " ended, ",
                                                 process->HowItEnded(), "; the end of its log:\n",
                                                 process->LogEnd()));
    }
    if (std::chrono::steady_clock::now() > deadline) {
      return absl::DeadlineExceededError(absl::StrCat(
          "the router finds no workers: ", health.ok() ? health->body : health.status().message()));
    }
    std::this_thread::sleep_for(kHealthPoll);
  }
}

std::string Cluster::ApiCertificate() const {
  const std::vector<std::string>& flags = options_.router_flags;
  if (Has(flags, kApiCertificate)) return ValueOf(flags, kApiCertificate);
  return Has(flags, "config") ? ValueInFile(ValueOf(flags, "config"), kApiCertificate) : "";
}

std::string Cluster::url() const {
  const bool https = !ApiCertificate().empty();
  return absl::StrCat(https ? "https://" : "http://", processes_.back()->address("http"));
}

absl::Status Cluster::Restart(const Process& process, const std::function<bool()>& cancelled) {
  std::vector<size_t> places;  // of processes that go down and come up together
  for (size_t i = 0; i < processes_.size(); ++i) {
    const ProcessSpec& spec = processes_[i]->spec();
    if (spec.role == process.spec().role && spec.group == process.spec().group) places.push_back(i);
  }
  BATON_ASSIGN_OR_RETURN(const std::string meeting, FreeAddress());
  for (const size_t place : places) {
    processes_[place]->Kill();
    BATON_ASSIGN_OR_RETURN(processes_[place], Process::Start(Again(*processes_[place], meeting)));
  }
  for (const size_t place : places) {
    BATON_RETURN_IF_ERROR(processes_[place]->AwaitAddresses(options_.start_timeout, cancelled));
  }
  return absl::OkStatus();
}

bool Cluster::Serves() const {
  std::map<std::pair<std::string, int>, bool> workers;  // by role and group
  for (const std::unique_ptr<Process>& process : processes_) {
    const ProcessSpec& spec = process->spec();
    bool& whole = workers.try_emplace({spec.role, spec.group}, true).first->second;
    whole = whole && process->Running();
  }
  std::map<std::string, bool> roles;
  for (const auto& [worker, whole] : workers) roles[worker.first] |= whole;
  return std::ranges::all_of(roles, [](const auto& role) { return role.second; });
}

absl::Status Cluster::Stop(const std::function<bool()>& hurry) {
  const auto deadline = std::chrono::steady_clock::now() + options_.stop_timeout;
  std::vector<std::string> problems;
  const auto finish = [&](Process& process) {
    if (!process.WaitFor(deadline - std::chrono::steady_clock::now(), hurry)) {
      process.Kill();
      problems.push_back(absl::StrCat(process.spec().name, " had not stopped and was killed"));
    } else if (!process.ended_well()) {
      problems.push_back(absl::StrCat(process.spec().name, ": ", process.HowItEnded()));
    }
  };
  if (!processes_.empty()) {
    processes_.back()->Drain();
    finish(*processes_.back());
    processes_.pop_back();
  }
  for (const std::unique_ptr<Process>& worker : processes_) worker->Drain();
  for (const std::unique_ptr<Process>& worker : processes_) finish(*worker);
  processes_.clear();
  return problems.empty() ? absl::OkStatus() : absl::InternalError(absl::StrJoin(problems, "; "));
}

}  // namespace baton::cli
