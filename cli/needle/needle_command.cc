#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "cli/api_key.h"
#include "cli/cluster.h"
#include "cli/command.h"
#include "cli/files.h"
#include "cli/interrupt.h"
#include "cli/json_dump.h"
#include "cli/needle/output.h"
#include "cli/needle/runner.h"
#include "cli/terminal.h"
#include "cli/tls_flags.h"
#include "common/status_macros.h"

namespace baton::cli {
namespace {

namespace fs = std::filesystem;

struct NeedleOptions {
  GridOptions grid;
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
  std::vector<std::string> engines;
  bool colocated = false;
  bool explain = false;
  int max_tokens = 24;
  std::string json;
  std::string svg;
  std::string report;
};

struct Configuration {
  std::string name;
  std::vector<std::string> flags;
};

// All combinations of the lists. A flag with one value is no part of the name.
std::vector<Configuration> Configurations(const NeedleOptions& options) {
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
std::string PagesFlag(const GridOptions& grid) {
  constexpr int64_t kPageTokens = 256;
  constexpr int64_t kDefault = 512;
  int64_t longest = 0;
  for (const int64_t length : grid.lengths) longest = std::max(longest, length);
  const int64_t needed = (longest + 64 * Cell::kMostDistractors) / kPageTokens + 2;
  return absl::StrCat("--pages=", std::max(kDefault, needed * 5 / 4));
}

fs::path RecallBinary() { return ProgramIn(OwnFolder(), "recall"); }

absl::Status WriteOut(const std::string& path, const std::string& content) {
  if (path != "-") return WriteFile(path, content);
  std::cout << content << std::endl;
  return absl::OkStatus();
}

// As it was typed, a flag a line, without the folder of the program.
std::string TypedCommand() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::vector<std::string> words = absl::StrSplit(text, '\0', absl::SkipEmpty());
  if (words.empty()) return "baton needle";
  words[0] = "baton";
  const std::string folder = OwnFolder().string() + "/";
  for (std::string& word : words) {
    word = absl::StrReplaceAll(word, {{folder, ""}});
    if (word.find(' ') != std::string::npos) word = absl::StrCat("'", word, "'");
  }
  return absl::StrReplaceAll(absl::StrJoin(words, " \\\n  "),
                             {{"baton \\\n  needle", "baton needle"}});
}

// One run of the command.
class Needles {
 public:
  explicit Needles(const NeedleOptions& options) : options_(options) {}

  absl::Status Run() {
    BATON_RETURN_IF_ERROR(Check());
    const absl::StatusOr<std::vector<Cell>> cells = MakeGrid(options_.grid);
    if (!cells.ok()) return UsageError(cells.status().message());
    if (!options_.model_dir.empty()) {
      BATON_ASSIGN_OR_RETURN(
          tokenizer_, router::Tokenizer::Load((fs::path(options_.model_dir) / "tokenizer.json")));
    }
    const Interrupts interrupts({SIGINT});
    BATON_ASSIGN_OR_RETURN(logs_, MakeTemporaryFolder("baton-needle"));
    const absl::Cleanup forget_logs = [this] {  // errors quote their ends
      std::error_code ignored;
      fs::remove_all(logs_, ignored);
    };
    const TextMeter meter(tokenizer_ ? &*tokenizer_ : nullptr);
    const std::vector<SubjectSpec> specs = Specs();
    ProgressBar progress("needles", "needles", std::ssize(specs) * std::ssize(*cells));
    int64_t done = 0;
    const RunnerOptions runner{.meter = &meter,
                               .tokenizer = tokenizer_ ? &*tokenizer_ : nullptr,
                               .on_cell = [&] { progress.Update(++done); },
                               .cancelled = Interrupts::Pending};
    absl::Status asked;
    for (const SubjectSpec& spec : specs) {
      progress.Update(done);
      SubjectResult result;
      asked = RunSubject(spec, *cells, runner, result);
      if (!result.cells.empty()) results_.push_back(std::move(result));
      if (!asked.ok()) break;
    }
    progress.Clear();
    // What has been answered may have taken hours.
    const absl::Status written = results_.empty() ? absl::OkStatus() : Write(asked.ok());
    BATON_RETURN_IF_ERROR(asked);
    BATON_RETURN_IF_ERROR(written);
    return Outcome();
  }

 private:
  absl::Status Check() const {
    if (options_.url.empty() && options_.model_dir.empty()) {
      return UsageError("--url says who is asked, or --model-dir what a cluster is started with");
    }
    if (!options_.model_dir.empty()) return absl::OkStatus();
    if (options_.explain) return UsageError("--explain needs --model-dir: an engine of its own");
    if (!options_.engines.empty()) return UsageError("--engine needs --model-dir");
    if (options_.grid.align != 0) {
      return UsageError("--align needs --model-dir: its tokenizer says where tokens are");
    }
    return absl::OkStatus();
  }

  std::vector<std::string> EngineFlags(const std::vector<std::string>& flags) const {
    std::vector<std::string> all = {absl::StrCat("--model-dir=", options_.model_dir),
                                    PagesFlag(options_.grid)};
    all.insert(all.end(), options_.worker_flags.begin(), options_.worker_flags.end());
    all.insert(all.end(), flags.begin(), flags.end());
    return all;
  }

  auto StartEngine(fs::path binary, std::vector<std::string> flags) const {
    return [this, binary = std::move(binary), flags = EngineFlags(flags)] {
      return EngineSubject(binary, flags, *tokenizer_,
                           {.max_tokens = options_.max_tokens, .explain = options_.explain});
    };
  }

  std::vector<SubjectSpec> Specs() const {
    std::vector<SubjectSpec> specs;
    const fs::path recall = RecallBinary();
    for (const Configuration& configuration : Configurations(options_)) {
      SubjectSpec& spec = specs.emplace_back();
      spec.name = configuration.name;
      spec.flags = options_.worker_flags;
      spec.flags.insert(spec.flags.end(), configuration.flags.begin(), configuration.flags.end());
      if (options_.colocated) {
        spec.start = StartEngine(recall, configuration.flags);
        continue;
      }
      if (!options_.url.empty()) {
        spec.name = options_.url;
        spec.start = [this]() -> absl::StatusOr<std::unique_ptr<Subject>> {
          BATON_ASSIGN_OR_RETURN(const std::string key, Authorization(options_.api_key_file));
          return EndpointSubject(options_.url, options_.model,
                                 {.max_tokens = options_.max_tokens,
                                  .authorization = key,
                                  .ca_file = options_.ca_file});
        };
      } else {
        spec.start = [this, flags = spec.flags] { return StartCluster(flags); };
      }
      if (options_.explain) spec.start_explainer = StartEngine(recall, configuration.flags);
      if (!options_.url.empty()) break;
    }
    for (const std::string& engine : options_.engines) {
      const std::vector<std::string> parts = absl::StrSplit(engine, absl::MaxSplits('=', 1));
      const std::vector<std::string> words = absl::StrSplit(parts.at(1), ',');
      const std::vector<std::string> flags(words.begin() + 1, words.end());
      specs.push_back({.name = parts.at(0),
                       .flags = flags,
                       .start = StartEngine(words.at(0), flags),
                       .start_explainer = nullptr});
    }
    return specs;
  }

  absl::StatusOr<std::unique_ptr<Subject>> StartCluster(
      const std::vector<std::string>& flags) const {
    ClusterOptions cluster;
    cluster.model_dir = options_.model_dir;
    cluster.worker_flags = {PagesFlag(options_.grid)};
    cluster.worker_flags.insert(cluster.worker_flags.end(), flags.begin(), flags.end());
    cluster.log_dir = logs_;
    return ClusterSubject(cluster, {.max_tokens = options_.max_tokens}, Interrupts::Pending);
  }

  // `all`: every subject answered; what could fail as they did is not started again otherwise.
  absl::Status Write(bool all) const {
    if (options_.json != "-") std::cout << TerminalReport(results_, UsesColour(kStdout));
    if (!options_.json.empty()) {
      BATON_RETURN_IF_ERROR(WriteOut(options_.json, Json()));
    }
    if (!options_.svg.empty()) {
      BATON_RETURN_IF_ERROR(WriteOut(options_.svg, HeatMapSvg(results_.front())));
    }
    return options_.report.empty() ? absl::OkStatus() : WriteReport(all);
  }

  std::string Json() const { return Dump(ToJson(results_, options_.grid.seed), 1) + "\n"; }

  absl::Status WriteReport(bool with_memory) const {
    const fs::path folder = options_.report;
    std::error_code error;
    fs::create_directories(folder, error);
    if (error) {
      return absl::UnavailableError(absl::StrCat(folder.string(), ": ", error.message()));
    }
    ReportInput input{.results = results_, .memory = {}, .command = TypedCommand()};
    if (tokenizer_ && with_memory) {
      BATON_ASSIGN_OR_RETURN(input.memory, MeasureMemory());
    }
    for (size_t i = 0; i < results_.size(); ++i) {
      if (!HasHeatMap(results_, i)) continue;
      BATON_RETURN_IF_ERROR(
          WriteFile(folder / absl::StrCat("heat-", i + 1, ".svg"), HeatMapSvg(results_[i])));
    }
    BATON_RETURN_IF_ERROR(WriteFile(folder / "found.svg", FoundSvg(results_)));
    const std::string overlap = OverlapSvg(results_);
    if (!overlap.empty()) {
      BATON_RETURN_IF_ERROR(WriteFile(folder / "overlap.svg", overlap));
    }
    BATON_RETURN_IF_ERROR(WriteFile(folder / "needle.json", Json()));
    return WriteFile(folder / "README.md", MarkdownReport(input));
  }

  // Of the default configuration, one process a length.
  absl::StatusOr<std::vector<MemoryPoint>> MeasureMemory() const {
    const TextMeter meter(&*tokenizer_);
    std::vector<MemoryPoint> points;
    for (const int64_t length : options_.grid.lengths) {
      BATON_ASSIGN_OR_RETURN(const std::unique_ptr<Subject> engine,
                             EngineSubject(RecallBinary(), EngineFlags({}), *tokenizer_, {}));
      BATON_ASSIGN_OR_RETURN(const Conversation conversation,
                             MakeConversation({.tokens = length, .depth = 50}, meter));
      BATON_ASSIGN_OR_RETURN(const Reply reply,
                             engine->Ask({conversation.turns[0].text}, conversation));
      points.push_back({.tokens = reply.prompt_tokens,
                        .peak_bytes = reply.report.at("peak_bytes").get<int64_t>(),
                        .cache_bytes = reply.report.at("cache_bytes").get<int64_t>()});
    }
    return points;
  }

  absl::Status Outcome() const {
    int missed = 0;
    int asked = 0;
    for (const SubjectResult& result : results_) {
      asked += static_cast<int>(result.cells.size());
      missed += static_cast<int>(result.cells.size()) - result.found();
    }
    if (missed == 0) return absl::OkStatus();
    return absl::NotFoundError(absl::StrCat(missed, " of ", asked, " needles were missed"));
  }

  const NeedleOptions& options_;
  std::optional<router::Tokenizer> tokenizer_;
  fs::path logs_;
  std::vector<SubjectResult> results_;
};

// A list in one word, as workers' flags have it.
template <typename Value>
void AddCommaList(CLI::App* command, const std::string& name, std::vector<Value>& values,
                  const std::string& help) {
  command->add_option(name, values, help)->delimiter(',')->allow_extra_args(false);
}

}  // namespace

Command AddNeedle(CLI::App& app) {
  auto options = std::make_shared<NeedleOptions>();
  CLI::App* command = app.add_subcommand(
      "needle",
      "Hides facts in long prompts and asks for them: of an endpoint, or of clusters started with "
      "different options. Exits with 1 when one is missed.");
  GridOptions& grid = options->grid;
  command->add_option("--url", options->url, "OpenAI-compatible endpoint to ask");
  command->add_option("--model", options->model, "its model; by default the first it lists");
  AddApiKeyFile(command, options->api_key_file);
  AddCaFile(command, options->ca_file);
  command->add_option("--model-dir", options->model_dir,
                      "checkpoint: its tokenizer places needles to the token; without --url a "
                      "cluster is started with it");
  AddCommaList(command, "--lengths", grid.lengths, "prompt lengths in tokens");
  AddCommaList(command, "--depths", grid.depths, "where the needle is, in percent of the prompt");
  AddCommaList(command, "--distractors", grid.distractors, "other passphrases in the text");
  AddCommaList(command, "--turns", grid.turns, "questions of a conversation; the needle's is last");
  AddOption(command, "--align", grid.align,
            "4: the needle begins at every residue modulo 4; 128: just before, at and after a "
            "multiple of 128; 0: anywhere");
  AddOption(command, "--repeat", grid.repeat, "texts of every kind");
  AddOption(command, "--seed", grid.seed, "other texts; the same seed gives the same prompts");
  AddCommaList(command, "--index", options->index, "index key formats to start with: bf16,fp8,fp4");
  AddCommaList(command, "--numerics", options->numerics, "numerics to start with: reference,exact");
  AddCommaList(command, "--topk", options->topk, "entries to select: 512,1024");
  AddCommaList(command, "--chunk-tokens", options->chunk_tokens, "prompt tokens a step: 256,1024");
  AddList(command, "--worker-flag", options->worker_flags, "flag for every worker started");
  command->add_flag("--colocated", options->colocated,
                    "start one engine (baton-recall) for each configuration, not a cluster");
  AddList(command, "--engine", options->engines,
          "another build of baton-recall to ask too: NAME=BINARY,FLAG,...")
      ->check([](const std::string& text) {
        return text.find('=') == std::string::npos ? "must be NAME=BINARY" : "";
      });
  command->add_flag("--explain", options->explain,
                    "ask an engine of its own too, and say what its index selected");
  AddOption(command, "--max-tokens", options->max_tokens, "of an answer")
      ->check(InRange(1, 1 << 16));
  command->add_option("--json", options->json, "file for all results; - for stdout and only them");
  command->add_option("--svg", options->svg, "file for the heat map");
  command->add_option("--report", options->report, "folder for a report with plots");
  return {.app = command, .run = [options] { return Needles(*options).Run(); }};
}

}  // namespace baton::cli
