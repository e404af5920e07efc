#include <algorithm>
#include <iostream>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include <fnmatch.h>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "engine/cache/geometry.h"
#include "engine/cache/storage.h"
#include "engine/model/backend.h"
#include "engine/model/checkpoint.h"
#include "engine/model/forward.h"
#include "tests/golden/golden_file.h"
#include "tests/golden/golden_run.h"

// Compares this build's model with reference outputs; see README.md.

namespace baton::golden {
namespace {

using engine::Numerics;
using kernels::EntryFormat;

// How far logits may be from the reference's; README.md derives the figures.
constexpr double kMaxMedianRatio = 0.04;
constexpr double kMaxTraceMedianRatio = 0.06;
constexpr double kMaxRatio = 0.6;
constexpr double kMinMtpEqual = 0.95;
constexpr double kMinMeanOverlap = 0.965;
constexpr double kMinOverlap = 0.9;
constexpr size_t kSelectiveTokens = 2052;  // shorter prompts have nothing to select from

struct Flags {
  std::string file;
  std::string model;
  std::string device = "cpu";
  std::string cases = "*";
  EntryFormat kv_format = EntryFormat::kBf16;
  EntryFormat index_format = EntryFormat::kBf16;
  Numerics numerics = Numerics::kReference;
  bool deterministic = false;
  int index_topk = 0;
  int64_t chunk = 1024;
  int page_tokens = 256;
  int64_t max_tokens = INT64_MAX;
  int threads = 0;
};

void AddFlags(CLI::App& app, Flags& flags) {
  const auto choice = [&app](const std::string& name, auto& value, auto values,
                             const std::string& help) {
    const std::string names = CLI::detail::generate_map(values, /*key_only=*/true);
    app.add_option(name, value, help)
        ->transform(CLI::CheckedTransformer(values).description(names));
  };
  using Formats = std::map<std::string, EntryFormat>;
  app.add_option("file", flags.file, "reference outputs (safetensors)")->required();
  app.add_option("--model", flags.model, "model directory")->required();
  app.add_option("--device", flags.device, "where to compute")
      ->check(CLI::IsMember(engine::BackendNames()));
  app.add_option("--cases", flags.cases, "names or patterns, separated by commas");
  choice("--kv-cache-dtype", flags.kv_format,
         Formats{{"bf16", EntryFormat::kBf16}, {"fp8", EntryFormat::kFp8Packed}},
         "storage of KV entries; bf16 unless given");
  choice("--index-cache-dtype", flags.index_format,
         Formats{{"bf16", EntryFormat::kBf16},
                 {"fp8", EntryFormat::kFp8Index},
                 {"fp4", EntryFormat::kFp4Index}},
         "storage of index keys; bf16 unless given");
  choice("--numerics", flags.numerics,
         std::map<std::string, Numerics>{{"reference", Numerics::kReference},
                                         {"exact", Numerics::kExact}},
         "value grids of KV and index; reference unless given");
  app.add_flag("--enable-deterministic-inference", flags.deterministic,
               "bits that depend neither on the batch nor on chunks");
  app.add_option("--index-topk", flags.index_topk, "entries selected; 0: the model's")
      ->check(CLI::Range(0, 2048));
  app.add_option("--chunk", flags.chunk, "prompt tokens a call")->check(CLI::Range(1, 1 << 20));
  app.add_option("--page-tokens", flags.page_tokens, "tokens a cache page covers");
  app.add_option("--max-tokens", flags.max_tokens, "skip longer prompts");
  app.add_option("--threads", flags.threads, "0: all cores")->check(CLI::Range(0, 1024));
}

bool Matches(const std::string& name, const std::string& patterns) {
  const std::vector<std::string> list = CLI::detail::split(patterns, ',');
  return std::any_of(list.begin(), list.end(), [&](const std::string& pattern) {
    return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
  });
}

// Prints a line a case and remembers what was missed.
class Report {
 public:
  // Distances mean something only against the numerics that the reference had.
  explicit Report(const Flags& flags)
      : is_bounded_(flags.numerics == Numerics::kReference && flags.index_topk == 0) {}

  void Add(const GoldenCase& golden, const CaseResult& result) {
    ++cases_;
    std::string overlap;
    for (const auto& [layer, share] : result.overlap) {
      absl::StrAppendFormat(&overlap, " %d:%.4f", layer, share);
      if (golden.ids.size() >= kSelectiveTokens) overlaps_.push_back(share);
    }
    ratios_.insert(ratios_.end(), result.logits.ratios().begin(), result.logits.ratios().end());
    needles_ += golden.must_match;
    found_ += golden.must_match && result.tokens_equal;
    const std::string needle = !golden.must_match ? "-" : result.tokens_equal ? "found" : "LOST";
    std::cout << absl::StrFormat(
                     "%-7s tokens %-9s needle %-5s logits max|d| %.3f ratio %.3f  overlap%s  "
                     "prefill %.0f tok/s decode %.0f tok/s",
                     golden.name, result.tokens_equal ? "equal" : "DIFFERENT", needle,
                     result.logits.max_abs(), result.logits.Ratio(1), overlap,
                     static_cast<double>(golden.ids.size()) / result.prefill_seconds,
                     static_cast<double>(golden.out.size() - 1) / result.decode_seconds)
              << std::endl;
  }

  void Add(const GoldenTrace& golden, const TraceResult& result) {
    for (const auto& [layer, deviation] : result.streams) {
      Print(absl::StrCat("full300 streams.", layer), deviation);
    }
    Print("full300 logits", result.logits);
    Print("full300 MTP logits", result.mtp_logits);
    const double equal = result.mtp_argmax_equal / static_cast<double>(golden.ids.size());
    Require(result.logits.Ratio(0.5), kMaxTraceMedianRatio, "full300 median logits ratio");
    Require(result.mtp_logits.Ratio(0.5), kMaxTraceMedianRatio, "full300 median MTP logits ratio");
    Require(1 - equal, 1 - kMinMtpEqual, "full300 share of MTP tokens that differ");
  }

  // Whether nothing was missed.
  bool Summarize() {
    std::cout << absl::StrFormat("%d cases, needles found %d of %d\n", cases_, found_, needles_);
    if (!ratios_.empty()) {
      Require(Quantile(ratios_, 0.5), kMaxMedianRatio, "median logits ratio");
      Require(Quantile(ratios_, 1), kMaxRatio, "largest logits ratio");
    }
    if (!overlaps_.empty()) {
      const double mean = std::accumulate(overlaps_.begin(), overlaps_.end(), 0.0) /
                          static_cast<double>(overlaps_.size());
      Require(1 - mean, 1 - kMinMeanOverlap, "mean share of selected entries that differ");
      Require(1 - Quantile(overlaps_, 0), 1 - kMinOverlap, "largest such share");
    }
    const bool passed = cases_ > 0 && found_ == needles_ && misses_ == 0;
    std::cout << (passed ? "PASS" : "FAIL") << std::endl;
    return passed;
  }

 private:
  static void Print(const std::string& name, const Deviation& deviation) {
    std::cout << absl::StrFormat("%s: max|d| %.3f ratio median %.4f p95 %.4f max %.4f\n", name,
                                 deviation.max_abs(), deviation.Ratio(0.5), deviation.Ratio(0.95),
                                 deviation.Ratio(1));
  }

  void Require(double value, double bound, const std::string& name) {
    const bool met = value <= bound;
    if (is_bounded_ && !met) ++misses_;
    std::cout << absl::StrFormat("%s %.4f, bound %.4f%s\n", name, value, bound,
                                 met           ? ""
                                 : is_bounded_ ? "  MISSED"
                                               : "  (not applied to these options)");
  }

  bool is_bounded_;
  int cases_ = 0;
  int needles_ = 0;
  int found_ = 0;
  int misses_ = 0;
  std::vector<double> ratios_;    // of every logits row
  std::vector<double> overlaps_;  // of every selection that had to choose
};

absl::StatusOr<bool> Compare(const Flags& flags) {
  BATON_RETURN_IF_ERROR(InitLogging("golden", "info"));  // on stdout is the report alone
  BATON_ASSIGN_OR_RETURN(const engine::Checkpoint checkpoint,
                         engine::Checkpoint::Open(flags.model));
  BATON_ASSIGN_OR_RETURN(const std::unique_ptr<engine::Backend> backend,
                         engine::MakeBackend(flags.device));
  const engine::ModelConfig& config = checkpoint.config();
  BATON_ASSIGN_OR_RETURN(const GoldenFile golden, LoadGoldenFile(flags.file, config.vocab_size));

  int64_t longest = 1;
  for (const GoldenCase& item : golden.cases) {
    longest = std::max<int64_t>(longest, item.ids.size() + item.out.size());
  }
  engine::CacheOptions options{.page_tokens = flags.page_tokens,
                               .pages = 1,
                               .slots = 1,
                               .kv_format = flags.kv_format,
                               .index_format = flags.index_format};
  BATON_ASSIGN_OR_RETURN(engine::CacheGeometry geometry,
                         engine::MakeCacheGeometry(config, options));
  geometry.options.pages = geometry.PagesFor(longest);
  BATON_ASSIGN_OR_RETURN(const std::unique_ptr<engine::CacheStorage> cache,
                         backend->NewCache(geometry));
  BATON_ASSIGN_OR_RETURN(const std::unique_ptr<engine::Model> model,
                         backend->LoadModel(checkpoint, {.numerics = flags.numerics,
                                                         .index_topk = flags.index_topk,
                                                         .threads = flags.threads,
                                                         .deterministic = flags.deterministic}));
  GoldenRunner runner(*model, *cache, {.chunk = flags.chunk});

  Report report(flags);
  for (const GoldenCase& item : golden.cases) {
    if (static_cast<int64_t>(item.ids.size()) > flags.max_tokens) continue;
    if (Matches(item.name, flags.cases)) report.Add(item, runner.Run(item));
  }
  if (golden.trace && Matches("full300", flags.cases)) {
    report.Add(*golden.trace, runner.Run(*golden.trace));
  }
  return report.Summarize();
}

}  // namespace
}  // namespace baton::golden

int main(int argc, char** argv) {
  baton::golden::Flags flags;
  CLI::App app("Compares the model with reference outputs");
  baton::golden::AddFlags(app, flags);
  CLI11_PARSE(app, argc, argv);
  const absl::StatusOr<bool> passed = baton::golden::Compare(flags);
  if (!passed.ok()) {
    std::cerr << passed.status() << std::endl;
    return 2;
  }
  return *passed ? 0 : 1;
}
