#include "cli/needle/lineup.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/api_key.h"
#include "cli/files.h"
#include "cli/interrupt.h"
#include "common/status_macros.h"

namespace baton::cli {
namespace {

namespace fs = std::filesystem;

struct Configuration {
  std::string name;
  std::vector<std::string> flags;
};

// All combinations of the lists. A flag with one value is no part of the name.
std::vector<Configuration> Configurations(const LineupOptions& options) {
  std::vector<Configuration> all = {{}};
  const auto vary = [&](const char* flag, const char* label,
                        const std::vector<std::string>& values) {
    if (values.empty()) return;
    std::vector<Configuration> varied;
    for (const Configuration& before : all) {
      for (const std::string& value : values) {
        Configuration next = before;
        next.flags.push_back(absl::StrCat("--", flag, "=", value));
        if (values.size() > 1) {
          absl::StrAppend(&next.name, next.name.empty() ? "" : ", ", label, " ", value);
        }
        varied.push_back(std::move(next));
      }
    }
    all = std::move(varied);
  };
  vary("index-cache-dtype", "index", options.index);
  vary("numerics", "numerics", options.numerics);
  vary("index-topk", "top-k", options.topk);
  vary("chunk-tokens", "chunks of", options.chunk_tokens);
  for (Configuration& configuration : all) {
    if (configuration.name.empty()) {
      configuration.name = options.colocated ? "one engine" : "cluster";
    }
  }
  return all;
}

// The cache must take the longest conversation; workers keep earlier ones too, if there is room.
std::string PagesFlag(int64_t longest) {
  constexpr int64_t kPageTokens = 256;
  constexpr int64_t kDefault = 512;
  const int64_t needed = (longest + 64 * Cell::kMostDistractors) / kPageTokens + 2;
  return absl::StrCat("--pages=", std::max(kDefault, needed * 5 / 4));
}

fs::path RecallBinary() { return ProgramIn(OwnFolder(), "recall"); }

}  // namespace

Lineup::Lineup(const LineupOptions& options, int64_t longest, const router::Tokenizer* tokenizer,
               fs::path logs)
    : options_(options),
      pages_flag_(PagesFlag(longest)),
      tokenizer_(tokenizer),
      logs_(std::move(logs)) {}

std::vector<SubjectSpec> Lineup::Specs() const {
  std::vector<SubjectSpec> specs;
  const fs::path recall = RecallBinary();
  for (const Configuration& configuration : Configurations(options_)) {
    SubjectSpec& spec = specs.emplace_back();
    spec.name = configuration.name;
    spec.flags = options_.worker_flags;
    spec.flags.insert(spec.flags.end(), configuration.flags.begin(), configuration.flags.end());
    if (options_.colocated) {
      spec.start = Engine(recall, configuration.flags);
      continue;
    }
    if (!options_.url.empty()) {
      spec.name = options_.url;
      spec.start = [this] { return StartEndpoint(); };
    } else {
      spec.start = [this, flags = spec.flags] { return StartCluster(flags); };
    }
    if (options_.explain) spec.start_explainer = Engine(recall, configuration.flags);
    if (!options_.url.empty()) break;
  }
  for (const std::string& engine : options_.engines) {
    const std::vector<std::string> parts = absl::StrSplit(engine, absl::MaxSplits('=', 1));
    const std::vector<std::string> words = absl::StrSplit(parts.at(1), ',');
    const std::vector<std::string> flags(words.begin() + 1, words.end());
    specs.push_back({.name = parts.at(0),
                     .flags = flags,
                     .start = Engine(words.at(0), flags),
                     .start_explainer = nullptr});
  }
  return specs;
}

absl::StatusOr<std::unique_ptr<Subject>> Lineup::StartPlainEngine() const {
  return EngineSubject(RecallBinary(), EngineFlags({}), *tokenizer_, {});
}

std::vector<std::string> Lineup::EngineFlags(const std::vector<std::string>& flags) const {
  std::vector<std::string> all = {absl::StrCat("--model-dir=", options_.model_dir), pages_flag_};
  all.insert(all.end(), options_.worker_flags.begin(), options_.worker_flags.end());
  all.insert(all.end(), flags.begin(), flags.end());
  return all;
}

std::function<absl::StatusOr<std::unique_ptr<Subject>>()> Lineup::Engine(
    fs::path binary, const std::vector<std::string>& flags) const {
  return [this, binary = std::move(binary), flags = EngineFlags(flags)] {
    return EngineSubject(binary, flags, *tokenizer_,
                         {.max_tokens = options_.max_tokens, .explain = options_.explain});
  };
}

absl::StatusOr<std::unique_ptr<Subject>> Lineup::StartEndpoint() const {
  BATON_ASSIGN_OR_RETURN(const std::string key, Authorization(options_.api_key_file));
  return EndpointSubject(
      options_.url, options_.model,
      {.max_tokens = options_.max_tokens, .authorization = key, .ca_file = options_.ca_file});
}

absl::StatusOr<std::unique_ptr<Subject>> Lineup::StartCluster(
    const std::vector<std::string>& flags) const {
  ClusterOptions cluster;
  cluster.model_dir = options_.model_dir;
  cluster.worker_flags = {pages_flag_};
  cluster.worker_flags.insert(cluster.worker_flags.end(), flags.begin(), flags.end());
  cluster.log_dir = logs_;
  return ClusterSubject(cluster, {.max_tokens = options_.max_tokens}, Interrupts::Pending);
}

}  // namespace baton::cli
