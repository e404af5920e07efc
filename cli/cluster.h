#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/process.h"

namespace baton::cli {

// Of one role on one machine.
inline constexpr int kMaxWorkers = 64;

struct ClusterOptions {
  std::filesystem::path binaries = {};  // empty: where this program is
  std::string model_dir = {};
  int prefill = 1;  // workers of each role; 0 prefill workers: decode workers prefill by themselves
  int decode = 1;
  int ranks = 1;  // processes of a worker, which share the model's experts
  // CUDA devices; each worker process sees one, in turn, and all see all if there are none here.
  std::vector<std::string> devices = {};
  // "--pages=64", or that in two words; of flags with the same name the last counts, those of one
  // role before these.
  std::vector<std::string> worker_flags = {};
  std::vector<std::string> prefill_flags = {};
  std::vector<std::string> decode_flags = {};
  std::vector<std::string> router_flags = {};
  std::filesystem::path log_dir = {};       // must exist; one file a process
  std::chrono::seconds start_timeout{600};  // large checkpoints take minutes
  std::chrono::seconds stop_timeout{60};
};

// A router and its workers as processes of this machine. Unless flags say otherwise the kernel
// chooses every port, and only this machine is served. Not thread-safe.
class Cluster {
 public:
  // Returns when the router answers /health with 200. An error, with the end of a log, when a
  // process does not start; then none is left. An address that the router is to listen on and
  // somebody else does is one before anything starts. `cancelled`, asked ten times a second while
  // it waits, may end it.
  static absl::StatusOr<std::unique_ptr<Cluster>> Start(
      ClusterOptions options, const std::function<bool()>& cancelled = nullptr);
  // Kills what still runs.
  ~Cluster();

  std::string url() const;  // of the HTTP API
  // Workers first, the router last.
  const std::vector<std::unique_ptr<Process>>& processes() const { return processes_; }
  // Starts a process that has ended again, and the other ranks of its worker, with the addresses
  // that others know them by. Pointers to these processes are void afterwards.
  absl::Status Restart(const Process& process, const std::function<bool()>& cancelled = nullptr);

  // Whether the router runs, and of each role a worker with all of its ranks.
  bool Serves() const;

  // Drains the router, then all workers at once; kills what still runs when stop_timeout has passed
  // since the call, or when `hurry` says so. An error names those that were killed or did not exit
  // with 0.
  absl::Status Stop(const std::function<bool()>& hurry = nullptr);

 private:
  explicit Cluster(ClusterOptions options) : options_(std::move(options)) {}
  absl::Status StartAll(const std::function<bool()>& cancelled);
  absl::Status AwaitWorkers(const std::function<bool()>& cancelled);
  absl::Status WaitReady(const std::function<bool()>& cancelled);
  std::string ApiCertificate() const;  // which file, by the router's flags; empty: plain HTTP

  const ClusterOptions options_;
  std::vector<std::unique_ptr<Process>> processes_;
};

}  // namespace baton::cli
