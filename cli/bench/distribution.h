#pragma once

#include <cstdint>
#include <random>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace baton::cli {

// Lengths in tokens, written as
//   512                    always that
//   uniform:100:900        each length from 100 to 900 alike
//   exponential:400        of that mean
//   lognormal:400:0.8      of that mean; the logarithm deviates by 0.8
class LengthDistribution {
 public:
  // INVALID_ARGUMENT names the text and what is accepted.
  static absl::StatusOr<LengthDistribution> Parse(absl::string_view text);

  int64_t Sample(std::mt19937_64& random) const;  // from 1 to 2^24

 private:
  enum class Kind { kFixed, kUniform, kExponential, kLogNormal };
  Kind kind_ = Kind::kFixed;
  double a_ = 1, b_ = 0;
};

}  // namespace baton::cli
