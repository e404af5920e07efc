#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

// What a /metrics endpoint says, in Prometheus' text format.

namespace baton::cli {

using Labels = std::map<std::string, std::string>;

// A histogram as counts of observations at most as large as each bound.
class Histogram {
 public:
  Histogram() = default;
  explicit Histogram(std::map<double, double> cumulative) : cumulative_(std::move(cumulative)) {}

  double count() const { return cumulative_.empty() ? 0 : cumulative_.rbegin()->second; }
  void Add(const Histogram& other);
  // The observations since `before` was read; a count that fell (a restart) starts anew.
  Histogram Since(const Histogram& before) const;
  // Linear within a bucket, as Prometheus' histogram_quantile; the highest finite bound for what
  // lies beyond it. NaN without observations.
  double Quantile(double q) const;

 private:
  std::map<double, double> cumulative_;  // upper bound, +Inf the last -> count
};

class MetricsText {
 public:
  // INVALID_ARGUMENT names the line that is no sample.
  static absl::StatusOr<MetricsText> Parse(absl::string_view text);

  // Over all samples of the name that carry these labels; 0 without any.
  double Sum(const std::string& name, const Labels& with = {}) const;
  Histogram HistogramOf(const std::string& name, const Labels& with = {}) const;
  // The label sets of the samples of a name, with their values.
  const std::vector<std::pair<Labels, double>>& Samples(const std::string& name) const;

 private:
  std::map<std::string, std::vector<std::pair<Labels, double>>> samples_;
};

}  // namespace baton::cli
