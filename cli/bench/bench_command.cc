#include <algorithm>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/api_key.h"
#include "cli/bench/replay.h"
#include "cli/bench/report.h"
#include "cli/bench/workload.h"
#include "cli/command.h"
#include "cli/defaults.h"
#include "cli/files.h"
#include "cli/generation.h"
#include "cli/interrupt.h"
#include "cli/terminal.h"
#include "cli/tls_flags.h"
#include "common/read_file.h"
#include "common/status_macros.h"

namespace baton::cli {
namespace {

namespace fs = std::filesystem;

struct BenchOptions {
  std::string url = kDefaultUrl;
  std::string model;  // empty: what the server serves
  std::string api_key_file;
  std::string ca_file;

  std::vector<double> rates;
  std::vector<int> concurrencies;
  double speed = 1;
  int max_in_flight = 1024;

  std::string trace, generate_trace;
  int64_t requests = 100;
  std::string input = "512", output = "128";
  int turns = 1;
  double think_time_s = 1;
  int64_t shared_prefix = 0;
  int prefix_groups = 1;
  int64_t block_tokens = 512;
  std::optional<uint64_t> seed;

  int warmup = 0;
  double temperature = 0;
  int32_t token_low = 16, token_high = 1000;
  double timeout_s = 600;

  std::optional<double> slo_ttft_ms, slo_tpot_ms, slo_e2e_ms;
  bool json = false;
  std::string csv, plots;
};

absl::Status Check(const BenchOptions& options) {
  if (!options.rates.empty() && !options.concurrencies.empty()) {
    return UsageError("--rate asks for an open loop, --concurrency for a closed one: give one");
  }
  if (!options.trace.empty() && !options.rates.empty()) {
    return UsageError("a trace has its own times: --speed makes them pass faster, not --rate");
  }
  if (options.token_low >= options.token_high) {
    return UsageError("--token-low must be less than --token-high");
  }
  return absl::OkStatus();
}

// One run of the bench.
struct Load {
  std::string name;
  double rate = 0;      // sessions a second of the synthetic workload; 0: all at once
  int concurrency = 0;  // 0: open loop
};

std::vector<Load> LoadsOf(const BenchOptions& options) {
  std::vector<Load> loads;
  for (const double rate : options.rates) {
    loads.push_back({.name = absl::StrFormat("%g/s", rate), .rate = rate});
  }
  for (const int concurrency : options.concurrencies) {
    loads.push_back({.name = absl::StrCat(concurrency, " at a time"), .concurrency = concurrency});
  }
  if (!loads.empty()) return loads;
  if (!options.trace.empty()) return {{.name = "trace"}};
  return {{.name = "1 at a time", .concurrency = 1}};
}

absl::StatusOr<std::vector<TraceRequest>> Synthetic(const BenchOptions& options, double rate,
                                                    uint64_t seed) {
  const auto lengths = [](const char* flag, const std::string& text) {
    absl::StatusOr<LengthDistribution> parsed = LengthDistribution::Parse(text);
    if (parsed.ok()) return parsed;
    return absl::StatusOr<LengthDistribution>(
        UsageError(absl::StrCat(flag, ": ", parsed.status().message())));
  };
  WorkloadOptions workload;
  workload.requests = options.requests;
  workload.rate = rate;
  BATON_ASSIGN_OR_RETURN(workload.input, lengths("--input", options.input));
  BATON_ASSIGN_OR_RETURN(workload.output, lengths("--output", options.output));
  workload.turns = options.turns;
  workload.think_time_s = options.think_time_s;
  workload.shared_prefix = options.shared_prefix;
  workload.prefix_groups = options.prefix_groups;
  workload.block_tokens = options.block_tokens;
  workload.seed = seed;
  return MakeWorkload(workload);
}

absl::StatusOr<std::vector<TraceRequest>> Requests(const BenchOptions& options, double rate,
                                                   uint64_t seed) {
  if (options.trace.empty()) return Synthetic(options, rate, seed);
  BATON_ASSIGN_OR_RETURN(const std::string text, ReadFile(options.trace));
  return ParseTrace(text, options.trace);
}

absl::Status WarmUp(const BenchOptions& options, ReplayOptions replay) {
  if (options.warmup == 0) return absl::OkStatus();
  replay.prompts.seed = ~replay.prompts.seed;  // nothing of the workload is cached by it
  replay.concurrency = 1;
  BATON_ASSIGN_OR_RETURN(std::vector<TraceRequest> requests,
                         Requests(options, 0, replay.prompts.seed));
  requests.resize(std::min<size_t>(requests.size(), options.warmup));
  BATON_ASSIGN_OR_RETURN(const std::vector<RequestRecord> records,
                         Replay(requests, replay, [](int64_t) {}));
  for (const RequestRecord& record : records) {
    BATON_RETURN_IF_ERROR(record.status) << "warming up";
  }
  return absl::OkStatus();
}

absl::Status WriteCharts(const fs::path& folder, const Charts& charts) {
  std::error_code error;
  fs::create_directories(folder, error);
  for (const auto& [name, svg] : charts) {
    BATON_RETURN_IF_ERROR(WriteFile(folder / name, svg));
  }
  return absl::OkStatus();
}

Objectives ObjectivesOf(const BenchOptions& options) {
  Objectives objectives;
  if (options.slo_ttft_ms) objectives.ttft_s = *options.slo_ttft_ms / 1e3;
  if (options.slo_tpot_ms) objectives.tpot_s = *options.slo_tpot_ms / 1e3;
  if (options.slo_e2e_ms) objectives.e2e_s = *options.slo_e2e_ms / 1e3;
  return objectives;
}

absl::StatusOr<ReplayOptions> ReplayOf(const BenchOptions& options) {
  absl::StatusOr<Url> url = ParseUrl(options.url);
  if (!url.ok()) return UsageError(absl::StrCat("--url: ", url.status().message()));
  ReplayOptions replay{.url = *std::move(url)};
  BATON_ASSIGN_OR_RETURN(replay.authorization, Authorization(options.api_key_file));
  replay.ca_file = options.ca_file;
  replay.model = options.model;
  if (replay.model.empty()) {
    HttpClient client(replay.url, {.cancelled = Interrupts::Pending,
                                   .authorization = replay.authorization,
                                   .ca_file = replay.ca_file});
    BATON_ASSIGN_OR_RETURN(replay.model, ServedModel(client));
  }
  replay.speed = options.speed;
  replay.max_in_flight = options.max_in_flight;
  replay.temperature = options.temperature;
  replay.prompts = {
      .block_tokens = options.block_tokens, .low = options.token_low, .high = options.token_high};
  replay.silence_timeout = std::chrono::nanoseconds(int64_t(options.timeout_s * 1e9));
  return replay;
}

// Runs one load after another; `seed` is the first one's, further ones have the next.
class Bench {
 public:
  Bench(const BenchOptions& options, ReplayOptions replay, uint64_t seed)
      : options_(options), replay_(std::move(replay)), seed_(seed) {}

  absl::Status Run(const std::vector<Load>& loads) {
    for (const Load& load : loads) {
      if (Interrupts::Pending()) break;
      BATON_RETURN_IF_ERROR(RunOne(load, loads.size() > 1));
    }
    const bool colour = UsesColour(kStdout);
    if (!options_.json && !reports_.empty()) {
      std::cout << (loads.size() > 1 ? ReportText(reports_, colour)
                                     : ReportText(reports_.front(), colour))
                << std::flush;
    }
    if (!options_.csv.empty()) {
      BATON_RETURN_IF_ERROR(WriteFile(options_.csv, CsvHeader() + csv_));
    }
    if (!options_.plots.empty() && loads.size() > 1) {
      BATON_RETURN_IF_ERROR(WriteCharts(options_.plots, ReportCharts(reports_)));
    }
    return Verdict();
  }

 private:
  absl::Status RunOne(const Load& load, bool one_of_several) {
    const uint64_t seed = seed_ + reports_.size();
    BATON_ASSIGN_OR_RETURN(const std::vector<TraceRequest> requests,
                           Requests(options_, load.rate, seed));
    replay_.concurrency = load.concurrency;
    replay_.prompts.seed = seed;
    ProgressBar progress(load.name, "requests", static_cast<int64_t>(requests.size()));
    BATON_ASSIGN_OR_RETURN(const std::vector<RequestRecord> records,
                           Replay(requests, replay_, [&](int64_t done) { progress.Update(done); }));
    progress.Clear();

    BenchReport report = MakeReport(records, ObjectivesOf(options_));
    report.load = load.name;
    report.seed = seed;
    if (options_.json) std::cout << ReportJson(report) << std::flush;
    reports_.push_back(std::move(report));
    csv_ += RecordsCsv(load.name, records);
    if (options_.plots.empty() || one_of_several) return absl::OkStatus();
    return WriteCharts(options_.plots, ReportCharts(records));
  }

  absl::Status Verdict() const {
    if (Interrupts::Pending()) return absl::CancelledError("interrupted");
    int64_t requests = 0, failed = 0;
    for (const BenchReport& report : reports_) {
      requests += report.requests;
      failed += report.requests - report.succeeded;
    }
    if (failed == 0) return absl::OkStatus();
    return absl::UnavailableError(absl::StrCat(failed, " of ", requests, " requests failed"));
  }

  const BenchOptions& options_;
  ReplayOptions replay_;
  const uint64_t seed_;
  std::vector<BenchReport> reports_;
  std::string csv_;
};

absl::Status Run(const BenchOptions& options) {
  BATON_RETURN_IF_ERROR(Check(options));
  // Without a seed no two runs have the same prompts: nobody measures a cache by accident.
  const uint64_t seed = options.seed.value_or(std::random_device()());
  const std::vector<Load> loads = LoadsOf(options);
  // Before anything is asked of a server: what is wrong with the workload is known now.
  BATON_ASSIGN_OR_RETURN(const std::vector<TraceRequest> requests,
                         Requests(options, loads.front().rate, seed));
  if (!options.generate_trace.empty())
    return WriteFile(options.generate_trace, TraceText(requests));

  const Interrupts interrupts({SIGINT, SIGTERM});
  BATON_ASSIGN_OR_RETURN(ReplayOptions replay, ReplayOf(options));
  replay.prompts.seed = seed;
  BATON_RETURN_IF_ERROR(WarmUp(options, replay));
  return Bench(options, std::move(replay), seed).Run(loads);
}

void AddLoadOptions(CLI::App* command, BenchOptions& options) {
  AddList(command, "--rate", options.rates,
          "open loop: sessions begin so often a second, as a Poisson process; several, such as "
          "1,2,4, are run one after another")
      ->delimiter(',')
      ->check(InRange(1e-6, 1e6));
  AddList(command, "--concurrency", options.concurrencies,
          "closed loop: so many requests at any time; may be several as well [default 1]")
      ->delimiter(',')
      ->check(InRange(1, 65536));
  command
      ->add_option("--trace", options.trace,
                   "Mooncake trace to replay: at its times, or as fast as --concurrency allows")
      ->type_name("FILE");
  AddOption(command, "--speed", options.speed, "a trace's times pass so many times as fast")
      ->check(InRange(1e-6, 1e6));
  AddOption(command, "--max-in-flight", options.max_in_flight,
            "open loop: more wait, and their latency counts that")
      ->check(InRange(1, 65536));
  command
      ->add_option("--generate-trace", options.generate_trace,
                   "write the synthetic workload as a trace, and end")
      ->type_name("FILE");
}

void AddWorkloadOptions(CLI::App* command, BenchOptions& options) {
  AddOption(command, "--requests", options.requests, "of the synthetic workload")
      ->check(InRange<int64_t>(1, 100000000));
  AddOption(command, "--input", options.input,
            "prompt tokens: N, uniform:LOW:HIGH, exponential:MEAN or lognormal:MEAN:SIGMA");
  AddOption(command, "--output", options.output, "tokens to generate, in the same ways");
  AddOption(command, "--turns", options.turns, "of a session; each sends the conversation so far")
      ->check(InRange(1, 10000));
  AddOption(command, "--think-time", options.think_time_s,
            "open loop: mean seconds from one turn to the next")
      ->check(InRange(0.0, 86400.0));
  AddOption(command, "--shared-prefix", options.shared_prefix,
            "tokens with which all prompts of a group begin, in whole blocks")
      ->check(InRange<int64_t>(0, 1 << 24));
  AddOption(command, "--prefix-groups", options.prefix_groups, "how many such beginnings there are")
      ->check(InRange(1, 1000000));
  AddOption(command, "--block-tokens", options.block_tokens, "that one hash id of a trace means")
      ->check(InRange<int64_t>(1, 1 << 20));
  command->add_option("--seed", options.seed,
                      "of workload and prompts [default: another each time, so that no cache "
                      "knows them]");
}

void AddReportOptions(CLI::App* command, BenchOptions& options) {
  const auto objective = [&](const char* name, std::optional<double>& value, const char* help) {
    command->add_option(name, value, help)->check(InRange(0.0, 1e9));
  };
  objective("--slo-ttft", options.slo_ttft_ms, "goodput: longest time to first token, in ms");
  objective("--slo-tpot", options.slo_tpot_ms, "goodput: longest time per further token, in ms");
  objective("--slo-e2e", options.slo_e2e_ms, "goodput: longest time of a request, in ms");
  command->add_flag("--json", options.json, "the report as JSON, a line for each load");
  command->add_option("--csv", options.csv, "write a line for each request")->type_name("FILE");
  command->add_option("--plots", options.plots, "write charts as SVG")->type_name("FOLDER");
}

}  // namespace

Command AddBench(CLI::App& app) {
  auto options = std::make_shared<BenchOptions>();
  CLI::App* command = app.add_subcommand(
      "bench",
      "Puts load on a router and reports latencies, throughput and goodput. Prompts are random "
      "tokens of exact length.");
  AddOption(command, "--url", options->url, "of the router");
  command->add_option("--model", options->model, "by default the one that is served");
  AddApiKeyFile(command, options->api_key_file);
  AddCaFile(command, options->ca_file);
  AddLoadOptions(command, *options);
  AddWorkloadOptions(command, *options);
  AddOption(command, "--warmup", options->warmup, "requests before that are not measured")
      ->check(InRange(0, 1000000));
  AddOption(command, "--temperature", options->temperature, "of sampling")
      ->check(InRange(0.0, 100.0));
  AddOption(command, "--token-low", options->token_low, "lowest token id of prompts")
      ->check(InRange(0, 1 << 30));
  AddOption(command, "--token-high", options->token_high, "one more than the highest")
      ->check(InRange(1, 1 << 30));
  AddOption(command, "--timeout", options->timeout_s, "seconds of silence that fail a request")
      ->check(InRange(0.001, 1e6));
  AddReportOptions(command, *options);
  return {.app = command, .run = [options] { return Run(*options); }};
}

}  // namespace baton::cli
