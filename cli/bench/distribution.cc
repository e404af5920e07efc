#include "cli/bench/distribution.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace baton::cli {
namespace {

constexpr double kLongest = 1 << 24;

}  // namespace

absl::StatusOr<LengthDistribution> LengthDistribution::Parse(absl::string_view text) {
  const std::vector<std::string> parts = absl::StrSplit(text, ':');
  const auto number = [&](size_t index, double low, double* value) {
    return index < parts.size() && absl::SimpleAtod(parts[index], value) && *value >= low &&
           *value <= kLongest;
  };
  LengthDistribution lengths;
  bool good = false;
  if (parts.size() == 1) {
    good = number(0, 1, &lengths.a_);
  } else if (parts[0] == "uniform") {
    lengths.kind_ = Kind::kUniform;
    good = parts.size() == 3 && number(1, 1, &lengths.a_) && number(2, lengths.a_, &lengths.b_);
  } else if (parts[0] == "exponential") {
    lengths.kind_ = Kind::kExponential;
    good = parts.size() == 2 && number(1, 1, &lengths.a_);
  } else if (parts[0] == "lognormal") {
    lengths.kind_ = Kind::kLogNormal;
    good = parts.size() == 3 && number(1, 1, &lengths.a_) && number(2, 0, &lengths.b_);
  }
  if (good) return lengths;
  return absl::InvalidArgumentError(
      absl::StrCat("'", text,
                   "' is no distribution of lengths: N, uniform:LOW:HIGH, exponential:MEAN or "
                   "lognormal:MEAN:SIGMA, in tokens from 1 to 2^24"));
}

int64_t LengthDistribution::Sample(std::mt19937_64& random) const {
  double length = a_;
  if (kind_ == Kind::kUniform) {
    return std::uniform_int_distribution<int64_t>(std::llround(a_), std::llround(b_))(random);
  }
  if (kind_ == Kind::kExponential) length = std::exponential_distribution<>(1 / a_)(random);
  if (kind_ == Kind::kLogNormal) {  // mean of a log-normal: exp(mu + sigma^2 / 2)
    length = std::lognormal_distribution<>(std::log(a_) - b_ * b_ / 2, b_)(random);
  }
  return std::llround(std::clamp(length, 1.0, kLongest));  // the tails have no end
}

}  // namespace baton::cli
