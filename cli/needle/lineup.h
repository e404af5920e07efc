#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/needle/runner.h"
#include "cli/needle/subject.h"
#include "router/tokenizer/tokenizer.h"

// Who is asked: an endpoint, or a cluster or an engine for every configuration.

namespace baton::cli {

struct LineupOptions {
  std::string url;
  std::string model;
  std::string api_key_file;
  std::string ca_file;
  std::string model_dir;
  std::vector<std::string> index;  // each list: one configuration for each value
  std::vector<std::string> numerics;
  std::vector<std::string> topk;
  std::vector<std::string> chunk_tokens;
  std::vector<std::string> worker_flags;
  std::vector<std::string> engines;  // NAME=BINARY,FLAG,...
  bool colocated = false;
  bool explain = false;
  int max_tokens = 24;
};

class Lineup {
 public:
  // `longest`: tokens of the longest prompt. `tokenizer`: null only without model_dir. Clusters log
  // to `logs`. What is referred to outlives the lineup, and the lineup what it returns.
  Lineup(const LineupOptions& options, int64_t longest, const router::Tokenizer* tokenizer,
         std::filesystem::path logs);

  std::vector<SubjectSpec> Specs() const;
  // A single engine, of the default configuration.
  absl::StatusOr<std::unique_ptr<Subject>> StartPlainEngine() const;

 private:
  std::vector<std::string> EngineFlags(const std::vector<std::string>& flags) const;
  std::function<absl::StatusOr<std::unique_ptr<Subject>>()> Engine(
      std::filesystem::path binary, const std::vector<std::string>& flags) const;
  absl::StatusOr<std::unique_ptr<Subject>> StartEndpoint() const;
  absl::StatusOr<std::unique_ptr<Subject>> StartCluster(
      const std::vector<std::string>& flags) const;

  const LineupOptions& options_;
  const std::string pages_flag_;
  const router::Tokenizer* const tokenizer_;
  const std::filesystem::path logs_;
};

}  // namespace baton::cli
