#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "kernels/logit_adjustments.h"
#include "tests/kernels/support.h"

namespace baton::kernels {

// Random logits and adjustments of some of them: every stride-th token of every second row, so none
// twice.
struct LogitAdjustmentsCase {
  int64_t rows = 1;
  int64_t vocabulary = 1;
  int64_t stride = 1;

  std::vector<float> Logits() const {
    return RandomValues<float>(rows * vocabulary, /*seed=*/static_cast<uint32_t>(vocabulary), 8);
  }
  std::vector<LogitAdjustment> Adjustments() const {
    std::mt19937 random(7);
    std::uniform_real_distribution<float> repetition(0.5f, 2.0f), add(-100, 100);
    std::vector<LogitAdjustment> adjustments;
    for (int64_t row = 0; row < rows; row += 2) {
      for (int64_t token = row % stride; token < vocabulary; token += stride) {
        adjustments.push_back({.row = static_cast<int32_t>(row),
                               .token = static_cast<int32_t>(token),
                               .repetition = random() % 2 == 0 ? 1.0f : repetition(random),
                               .add = random() % 3 == 0 ? 0.0f : add(random)});
      }
    }
    return adjustments;
  }
};

inline constexpr LogitAdjustmentsCase kLogitAdjustmentsCases[] = {
    {.rows = 1, .vocabulary = 1, .stride = 1},
    {.rows = 1, .vocabulary = 129'280, .stride = 129'280},  // a single one
    {.rows = 2, .vocabulary = 257, .stride = 1},            // a thread more than a block has
    {.rows = 9, .vocabulary = 1024, .stride = 3},
    {.rows = 5, .vocabulary = 129'280, .stride = 101}};

}  // namespace baton::kernels
