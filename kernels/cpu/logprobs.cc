#include "kernels/logprobs.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "common/base/check.h"

namespace baton::kernels {

void Logprobs(std::span<const float> logits, int32_t token, std::span<TokenLogprob> row) {
  BATON_CHECK(token >= 0 && static_cast<size_t>(token) < logits.size() && !row.empty())
      << "token " << token << " of " << logits.size() << ", " << row.size() << " places";
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  const double shift = largest + std::log(sum);
  const auto entry = [&](int32_t id) {
    return TokenLogprob{.token = id, .logprob = static_cast<float>(logits[id] - shift)};
  };

  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const size_t top = std::min(row.size() - 1, ids.size());
  std::partial_sort(
      ids.begin(), ids.begin() + static_cast<int64_t>(top), ids.end(),
      [&](int32_t a, int32_t b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; });
  row[0] = entry(token);
  std::fill(row.begin() + 1, row.end(),
            TokenLogprob{.token = -1, .logprob = -std::numeric_limits<float>::infinity()});
  std::transform(ids.begin(), ids.begin() + static_cast<int64_t>(top), row.begin() + 1, entry);
}

}  // namespace baton::kernels
