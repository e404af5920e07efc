#include "kernels/router.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "common/base/check.h"

namespace baton::kernels {

namespace {

float Score(float logit) {
  const float softplus = logit > 20.0f ? logit : std::log1p(std::exp(logit));
  return std::sqrt(softplus);
}

}  // namespace

void Router(const RouterParams& params, ThreadPool& pool) {
  const int64_t experts = params.logits.cols;
  const int64_t k = params.experts.cols;
  BATON_CHECK(k <= experts && params.weights.cols == k &&
              params.experts.rows == params.logits.rows);
  BATON_CHECK(params.hash_experts ? static_cast<int64_t>(params.tokens.size()) == params.logits.rows
                                  : static_cast<int64_t>(params.bias.size()) == experts);
  pool.For(params.logits.rows, 256, [&](int64_t begin, int64_t end) {
    std::vector<float> scores(experts);
    std::vector<int32_t> order(experts);
    for (int64_t row = begin; row < end; ++row) {
      std::transform(params.logits.Row(row), params.logits.Row(row) + experts, scores.begin(),
                     Score);
      int32_t* chosen = params.experts.Row(row);
      if (params.hash_experts) {
        std::copy_n(params.hash_experts.Row(params.tokens[row]), k, chosen);
      } else {
        std::iota(order.begin(), order.end(), 0);
        std::partial_sort(order.begin(), order.begin() + k, order.end(), [&](int32_t a, int32_t b) {
          const float left = scores[a] + params.bias[a];
          const float right = scores[b] + params.bias[b];
          return left != right ? left > right : a < b;
        });
        std::copy_n(order.begin(), k, chosen);
      }
      std::sort(chosen, chosen + k);
      float sum = 0;
      for (int64_t i = 0; i < k; ++i) sum += scores[chosen[i]];
      for (int64_t i = 0; i < k; ++i) {
        params.weights.Row(row)[i] = scores[chosen[i]] / sum * params.scale;
      }
    }
  });
}

}  // namespace baton::kernels
