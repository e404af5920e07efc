#include "cli/bench/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace baton::cli {

double Percentile(const std::vector<double>& sorted, double q) {
  if (sorted.empty()) return std::numeric_limits<double>::quiet_NaN();
  const double at = std::clamp(q, 0.0, 1.0) * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(std::floor(at));
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (sorted[above] - sorted[below]) * (at - std::floor(at));
}

Summary Summarize(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const double sum = std::accumulate(samples.begin(), samples.end(), 0.0);
  return {.count = samples.size(),
          .mean = sum / static_cast<double>(samples.size()),
          .p50 = Percentile(samples, 0.5),
          .p90 = Percentile(samples, 0.9),
          .p95 = Percentile(samples, 0.95),
          .p99 = Percentile(samples, 0.99),
          .max = Percentile(samples, 1)};
}

}  // namespace baton::cli
