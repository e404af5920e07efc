#pragma once

#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/fd.h"

namespace baton::cli {

struct ProcessSpec {
  std::string name;  // "prefill-0", "prefill-0-rank-1"
  std::string role;  // prefill, decode, router
  std::filesystem::path binary;
  std::vector<std::string> flags;
  std::filesystem::path log_path;             // stderr is appended
  std::vector<std::string> environment = {};  // "NAME=value", in place of what this program has
  int group = 0;  // those of a role with the same number run only together: ranks of a worker
};

// One worker or router as a child, in a process group of its own: Ctrl-C in the terminal reaches
// only the parent, which stops its children in order. If the thread that started it ends, even by
// SIGKILL, the child is told to drain. Not thread-safe.
class Process {
 public:
  // Returns at once; AwaitAddresses follows, so that several can start at the same time.
  static absl::StatusOr<std::unique_ptr<Process>> Start(ProcessSpec spec);
  // Kills it if it runs.
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // Reads the line "listening grpc=host:port ...". UNAVAILABLE with the log's end when the process
  // ended instead, DEADLINE_EXCEEDED when it said nothing, CANCELLED when `cancelled` says so. Once
  // they are known it returns at once.
  absl::Status AwaitAddresses(std::chrono::nanoseconds timeout,
                              const std::function<bool()>& cancelled);
  // grpc, http, metrics: what of it this role has; empty for others.
  std::string address(const std::string& kind) const;

  bool Running();
  // After it has ended: "exit code 1", "signal 9 (Killed)".
  std::string HowItEnded() const;
  // With exit code 0, or by the SIGTERM of Drain before it had started, when nothing was to drain.
  bool ended_well() const {
    return wait_status_ == 0 || (wait_status_ == SIGTERM && draining_ && addresses_.empty());
  }

  void Drain();  // SIGTERM, once: a second one would end it where it stands
  // False when it still runs after `timeout`, or when `enough` says to wait no longer.
  bool WaitFor(std::chrono::nanoseconds timeout, const std::function<bool()>& enough = nullptr);
  void Kill();

  std::string LogEnd(size_t lines = 15) const;
  const ProcessSpec& spec() const { return spec_; }
  pid_t pid() const { return pid_; }

 private:
  explicit Process(ProcessSpec spec) : spec_(std::move(spec)) {}

  const ProcessSpec spec_;
  pid_t pid_ = -1;
  Fd stdout_;
  bool draining_ = false;
  std::optional<int> wait_status_;  // of waitpid, once it has ended
  std::map<std::string, std::string> addresses_;
};

}  // namespace baton::cli
