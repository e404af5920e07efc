#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <sys/types.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/fd.h"
#include "nlohmann/json.hpp"

namespace baton::cli {

// A baton-recall as a child (engine/recall): one engine that answers token ids and says what its
// indexer selected. Not thread-safe.
class RecallProcess {
 public:
  // Errors of the engine itself come with the first Ask.
  static absl::StatusOr<std::unique_ptr<RecallProcess>> Start(
      const std::filesystem::path& binary, const std::vector<std::string>& flags);
  ~RecallProcess();  // ends it
  RecallProcess(const RecallProcess&) = delete;
  RecallProcess& operator=(const RecallProcess&) = delete;

  // The answer to one request, see engine/recall/probe_json.h. UNAVAILABLE when the child has
  // ended; what it had to say is on stderr.
  absl::StatusOr<nlohmann::json> Ask(const nlohmann::json& request);

 private:
  RecallProcess(std::string name, pid_t pid, Fd input, Fd output)
      : name_(std::move(name)), pid_(pid), input_(std::move(input)), output_(std::move(output)) {}

  const std::string name_;
  const pid_t pid_;
  Fd input_;   // written to
  Fd output_;  // read from
  std::string received_;
};

}  // namespace baton::cli
