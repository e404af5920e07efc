#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "engine/cache/storage.h"
#include "engine/model/forward.h"
#include "tests/golden/golden_file.h"

// Runs the model the way a worker does - chunked prefill, then one token at a time over pages and a
// slot - and measures how far it is from the reference.

namespace baton::golden {

// Distance of rows (logits, or streams) from the reference's. A row's ratio is the RMS of its
// differences over the standard deviation of the reference's row: noise against spread.
class Deviation {
 public:
  void Add(std::span<const float> actual, std::span<const float> expected, int64_t width);

  double max_abs() const { return max_abs_; }
  double Ratio(double q) const;  // Quantile of ratios(); 1: the worst row's
  const std::vector<double>& ratios() const { return ratios_; }

 private:
  double max_abs_ = 0;
  std::vector<double> ratios_;  // by row
};

// The value that a share `q` of `values` (not empty) does not exceed.
double Quantile(std::vector<double> values, double q);

struct CaseResult {
  bool tokens_equal = false;  // argmax of every step is the reference's token
  std::vector<int32_t> out;   // those argmaxes
  Deviation logits;
  std::map<int, double> overlap;  // CSA layer -> share of the reference's entries also selected
  double prefill_seconds = 0;
  double decode_seconds = 0;
};

struct TraceResult {
  Deviation logits;
  Deviation mtp_logits;
  int mtp_argmax_equal = 0;          // rows whose most likely token is the reference's
  std::map<int, Deviation> streams;  // by layer
};

struct RunOptions {
  int64_t chunk = 1024;  // prompt tokens a call
};

class GoldenRunner {
 public:
  // Owns neither. The cache must have a slot and pages for the longest case.
  GoldenRunner(engine::Model& model, engine::CacheStorage& cache, const RunOptions& options);

  // Decoding is fed the reference's tokens, so one early difference does not hide the rest.
  CaseResult Run(const GoldenCase& golden);
  TraceResult Run(const GoldenTrace& golden);

 private:
  engine::Model& model_;
  engine::CacheStorage& cache_;
  RunOptions options_;
  std::vector<int32_t> pages_;  // page table of every case: scattered, reused, never cleared
};

}  // namespace baton::golden
