#include "tests/bench/kvtransfer_goals.h"

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace baton::kvtransfer {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr double kGrpcGoal = 0.85;
constexpr double kShmGoal = 0.5;
constexpr double kPromptSlope = 1.25;
constexpr double kPromptOffsetMs = 1;

const char* Verdict(bool pass) { return pass ? "pass" : "FAIL"; }

double MedianOf(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

void GoalsReporter::ReportRuns(const std::vector<Run>& runs) {
  ConsoleReporter::ReportRuns(runs);
  for (const Run& run : runs) {
    // "BM_Move<GrpcEnds>/65536": without what says how it was measured.
    std::string name = absl::StrCat(run.run_name.function_name, "/", run.run_name.args);
    const Cost cost = {.clock = run.GetAdjustedRealTime(), .cpu = run.GetAdjustedCPUTime()};
    if (run.run_type == Run::RT_Iteration) {
      runs_[name].push_back(cost);
    } else if (run.aggregate_name == "median") {
      medians_[name] = cost;
    } else {
      continue;
    }
    const auto rate = run.counters.find("bytes_per_second");
    if (rate != run.counters.end()) bytes_[name] = rate->second * cost.clock / 1e3;
  }
}

const GoalsReporter::Cost* GoalsReporter::Find(const std::string& name) {
  if (const auto found = runs_.find(name); found != runs_.end()) {
    std::vector<double> clock;
    std::vector<double> cpu;
    for (const Cost& cost : found->second) {
      clock.push_back(cost.clock);
      cpu.push_back(cost.cpu);
    }
    medians_[name] = {.clock = MedianOf(clock), .cpu = MedianOf(cpu)};
  }
  const auto median = medians_.find(name);
  return median == medians_.end() ? nullptr : &median->second;
}

void GoalsReporter::PrintRatio(const std::string& transport, const std::string& ceiling,
                               int64_t bytes, double goal) {
  const Cost* best = Find(absl::StrCat(ceiling, "/", bytes));
  const Cost* move = Find(absl::StrCat("BM_Move<", transport, ">/", bytes));
  if (best == nullptr || move == nullptr) return;
  const double clock = best->clock / move->clock;
  absl::PrintF("%-9s %4d MiB : %-14s %5.2f by the clock, goal %.2f %s   %5.2f of CPU\n", transport,
               bytes / kMiB, ceiling, clock, goal, Verdict(clock >= goal), best->cpu / move->cpu);
}

void GoalsReporter::PrintPrompt(const std::string& transport, int64_t tokens) {
  const std::string name = absl::StrCat("BM_Prompt<", transport, ">/", tokens);
  const Cost* prompt = Find(name);
  const Cost* ceiling = Find(absl::StrCat("BM_Move<", transport, ">/", 64 * kMiB));
  if (prompt == nullptr || ceiling == nullptr) return;
  const double pieces = bytes_[name] / static_cast<double>(64 * kMiB);
  const double goal = kPromptSlope * pieces * ceiling->clock + kPromptOffsetMs;
  absl::PrintF(
      "%-9s prompt of %6d tokens: %8.2f ms by the clock, goal %8.2f %s   %8.2f ms of CPU\n",
      transport, tokens, prompt->clock, goal, Verdict(prompt->clock <= goal), prompt->cpu);
}

void GoalsReporter::Finalize() {
  ConsoleReporter::Finalize();
  absl::PrintF("\nGoals: share of the ceiling, and hand-offs of whole prompts\n");
  for (const int64_t bytes : {16 * kMiB, 64 * kMiB, 256 * kMiB}) {
    PrintRatio("GrpcEnds", "BM_GrpcStream", bytes, kGrpcGoal);
    PrintRatio("ShmEnds", "BM_Memcpy", bytes, kShmGoal);
  }
  for (const char* transport : {"GrpcEnds", "ShmEnds"}) {
    for (const int64_t tokens : {512, 8192, 131072}) PrintPrompt(transport, tokens);
  }
}

}  // namespace baton::kvtransfer
