#pragma once

#include <cstddef>
#include <vector>

namespace baton::cli {

// Linear between the two nearest order statistics, as NumPy's default; q from 0 to 1. NaN without
// samples.
double Percentile(const std::vector<double>& sorted, double q);

struct Summary {
  size_t count = 0;
  double mean = 0, p50 = 0, p90 = 0, p95 = 0, p99 = 0, max = 0;  // NaN without samples
};
Summary Summarize(std::vector<double> samples);

}  // namespace baton::cli
