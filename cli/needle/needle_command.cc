#include <chrono>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/api_key.h"
#include "cli/command.h"
#include "cli/files.h"
#include "cli/interrupt.h"
#include "cli/json_dump.h"
#include "cli/needle/lineup.h"
#include "cli/needle/output.h"
#include "cli/needle/report_folder.h"
#include "cli/needle/runner.h"
#include "cli/terminal.h"
#include "cli/tls_flags.h"
#include "common/status_macros.h"

namespace baton::cli {
namespace {

namespace fs = std::filesystem;

struct NeedleOptions {
  GridOptions grid;
  LineupOptions lineup;
  std::string json;
  std::string svg;
  std::string report;
};

absl::Status WriteOut(const std::string& path, const std::string& content) {
  if (path != "-") return WriteFile(path, content);
  std::cout << content << std::endl;
  return absl::OkStatus();
}

// How far it is: a bar at a terminal, elsewhere a line for each answer.
class Progress {
 public:
  explicit Progress(int64_t total) : total_(total), bar_("needles", "needles", total) {}

  void Starting() { bar_.Update(done_); }
  void Answered(const std::string& subject, const CellResult& result) {
    bar_.Update(++done_);
    if (IsTerminal(kStderr)) return;
    std::cerr << absl::StrFormat("%d of %d: %s, %d tokens, depth %g %%, %s after %s\n", done_,
                                 total_, subject, result.cell.tokens, result.cell.depth,
                                 result.found ? "found" : "MISSED",
                                 HumanDuration(std::chrono::duration<double>(result.seconds)));
  }
  void Clear() { bar_.Clear(); }

 private:
  const int64_t total_;
  int64_t done_ = 0;
  ProgressBar bar_;
};

// One run of the command.
class Needles {
 public:
  explicit Needles(const NeedleOptions& options) : options_(options) {}

  absl::Status Run() {
    BATON_RETURN_IF_ERROR(Check());
    const absl::StatusOr<std::vector<Cell>> cells = MakeGrid(options_.grid);
    if (!cells.ok()) return UsageError(cells.status().message());
    if (!options_.lineup.model_dir.empty()) {
      BATON_ASSIGN_OR_RETURN(
          tokenizer_,
          router::Tokenizer::Load((fs::path(options_.lineup.model_dir) / "tokenizer.json")));
    }
    const Interrupts interrupts({SIGINT});
    BATON_ASSIGN_OR_RETURN(const fs::path logs, MakeTemporaryFolder("baton-needle"));
    const absl::Cleanup forget_logs = [&logs] {  // errors quote their ends
      std::error_code ignored;
      fs::remove_all(logs, ignored);
    };
    const router::Tokenizer* const tokenizer = tokenizer_ ? &*tokenizer_ : nullptr;
    const TextMeter meter(tokenizer);
    const Lineup lineup(options_.lineup, cells->back().tokens, tokenizer, logs);
    const std::vector<SubjectSpec> specs = lineup.Specs();
    Progress progress(std::ssize(specs) * std::ssize(*cells));
    const RunnerOptions runner{
        .meter = &meter,
        .tokenizer = tokenizer,
        .on_cell = [&](const auto& subject, const auto& cell) { progress.Answered(subject, cell); },
        .cancelled = Interrupts::Pending};
    absl::Status asked;
    for (const SubjectSpec& spec : specs) {
      progress.Starting();
      SubjectResult result;
      asked = RunSubject(spec, *cells, runner, result);
      if (!result.cells.empty()) results_.push_back(std::move(result));
      if (!asked.ok()) break;
    }
    progress.Clear();
    // What has been answered may have taken hours.
    const absl::Status written = results_.empty() ? absl::OkStatus() : Write(lineup, asked.ok());
    BATON_RETURN_IF_ERROR(asked);
    BATON_RETURN_IF_ERROR(written);
    return Outcome();
  }

 private:
  absl::Status Check() const {
    const LineupOptions& lineup = options_.lineup;
    if (lineup.url.empty() && lineup.model_dir.empty()) {
      return UsageError("--url says who is asked, or --model-dir what a cluster is started with");
    }
    if (!lineup.url.empty()) {
      BATON_RETURN_IF_ERROR(CheckUrl());
    }
    if (!lineup.model_dir.empty()) return absl::OkStatus();
    if (lineup.explain) return UsageError("--explain needs --model-dir: an engine of its own");
    if (!lineup.engines.empty()) return UsageError("--engine needs --model-dir");
    if (options_.grid.align != 0) {
      return UsageError("--align needs --model-dir: its tokenizer says where tokens are");
    }
    return absl::OkStatus();
  }

  // Beside a server that runs, --explain starts an engine of one configuration, --engine other
  // builds, and --report one engine to measure.
  absl::Status CheckUrl() const {
    const LineupOptions& lineup = options_.lineup;
    std::vector<std::string> unused;
    if (lineup.colocated) unused.push_back("--colocated");
    for (const auto& [flag, values] :
         {std::pair("--index", &lineup.index), std::pair("--numerics", &lineup.numerics),
          std::pair("--topk", &lineup.topk), std::pair("--chunk-tokens", &lineup.chunk_tokens)}) {
      if (!lineup.explain && !values->empty()) unused.push_back(flag);
      if (lineup.explain && values->size() > 1) {
        return UsageError(absl::StrCat(flag, " has several values; --url asks one server"));
      }
    }
    const bool starts_any = lineup.explain || !lineup.engines.empty() || !options_.report.empty();
    if (!lineup.worker_flags.empty() && !starts_any) unused.push_back("--worker-flag");
    if (unused.empty()) return absl::OkStatus();
    return UsageError(absl::StrCat(absl::StrJoin(unused, ", "),
                                   unused.size() == 1 ? " configures" : " configure",
                                   " an engine that is started; --url asks a server that runs"));
  }

  // `all`: every subject answered; what could fail as they did is not started again otherwise.
  absl::Status Write(const Lineup& lineup, bool all) const {
    if (options_.json != "-") std::cout << TerminalReport(results_, UsesColour(kStdout));
    if (!options_.json.empty()) {
      BATON_RETURN_IF_ERROR(WriteOut(options_.json, Json()));
    }
    if (!options_.svg.empty()) {
      BATON_RETURN_IF_ERROR(WriteOut(options_.svg, HeatMapSvg(results_.front())));
    }
    if (options_.report.empty()) {
      const bool more = options_.lineup.explain && options_.json.empty();
      if (more) std::cout << "layer by layer: with --report=FOLDER or --json=FILE\n";
      return absl::OkStatus();
    }
    ReportInput input{.results = results_, .memory = {}, .command = TypedCommand()};
    if (tokenizer_ && all) {
      BATON_ASSIGN_OR_RETURN(input.memory,
                             MeasureMemory(lineup, options_.grid.lengths, *tokenizer_));
    }
    BATON_RETURN_IF_ERROR(WriteReportFolder(options_.report, input, Json()));
    if (options_.json != "-") std::cout << "report: " << options_.report << "/README.md\n";
    return absl::OkStatus();
  }

  std::string Json() const { return Dump(ToJson(results_, options_.grid.seed), 1) + "\n"; }

  absl::Status Outcome() const {
    int missed = 0;
    int asked = 0;
    for (const SubjectResult& result : results_) {
      asked += static_cast<int>(result.cells.size());
      missed += static_cast<int>(result.cells.size()) - result.found();
    }
    if (missed == 0) return absl::OkStatus();
    return absl::NotFoundError(absl::StrCat("missed ", missed, " of ", Counted(asked, "needle")));
  }

  const NeedleOptions& options_;
  std::optional<router::Tokenizer> tokenizer_;
  std::vector<SubjectResult> results_;
};

// A list in one word, as workers' flags have it.
template <typename Value>
void AddCommaList(CLI::App* command, const std::string& name, std::vector<Value>& values,
                  const std::string& help) {
  CLI::Option* option =
      command->add_option(name, values, help)->delimiter(',')->allow_extra_args(false);
  if (!values.empty()) option->default_str(absl::StrJoin(values, ","));
}

}  // namespace

Command AddNeedle(CLI::App& app) {
  auto options = std::make_shared<NeedleOptions>();
  CLI::App* command = app.add_subcommand(
      "needle",
      "Hides facts in long prompts and asks for them: of an endpoint, or of clusters started with "
      "different options. Exits with 1 when one is missed.");
  GridOptions& grid = options->grid;
  LineupOptions& lineup = options->lineup;
  command->add_option("--url", lineup.url, "OpenAI-compatible endpoint to ask");
  command->add_option("--model", lineup.model, "its model; by default the first it lists");
  AddApiKeyFile(command, lineup.api_key_file);
  AddCaFile(command, lineup.ca_file);
  command->add_option("--model-dir", lineup.model_dir,
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
  AddCommaList(command, "--index", lineup.index, "index key formats to start with: bf16,fp8,fp4");
  AddCommaList(command, "--numerics", lineup.numerics, "numerics to start with: reference,exact");
  AddCommaList(command, "--topk", lineup.topk, "entries to select: 512,1024");
  AddCommaList(command, "--chunk-tokens", lineup.chunk_tokens, "prompt tokens a step: 256,1024");
  AddList(command, "--worker-flag", lineup.worker_flags, "flag for every worker started");
  command->add_flag("--colocated", lineup.colocated,
                    "start one engine (baton-recall) for each configuration, not a cluster");
  AddList(command, "--engine", lineup.engines,
          "another build of baton-recall to ask too: NAME=BINARY,FLAG,...")
      ->check([](const std::string& text) {
        return text.find('=') == std::string::npos ? "must be NAME=BINARY" : "";
      });
  command->add_flag("--explain", lineup.explain,
                    "ask an engine of its own too, and say what its index selected");
  AddOption(command, "--max-tokens", lineup.max_tokens, "of an answer")->check(InRange(1, 1 << 16));
  command->add_option("--json", options->json, "file for all results; - for stdout and only them");
  command->add_option("--svg", options->svg, "file for the heat map");
  command->add_option("--report", options->report, "folder for a report with plots");
  return {.app = command, .run = [options] { return Needles(*options).Run(); }};
}

}  // namespace baton::cli
