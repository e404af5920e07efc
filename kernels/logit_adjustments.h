#pragma once

#include <cstdint>
#include <span>

#include "kernels/matrix.h"

// Logits as they are sampled from, where a request biases tokens or penalises those that have come:
// before temperature and filters. Sparse: all other logits stay.

namespace baton::kernels {

struct LogitAdjustment {
  int32_t row = 0;
  int32_t token = 0;     // an id of the vocabulary
  float repetition = 1;  // finite, > 0; 1: changes no bit
  float add = 0;         // finite
};

//   l[row, token] <- (l > 0 ? l / repetition : l * repetition) + add
//
// each operation rounded to FP32. No (row, token) may stand there twice.
void AdjustLogits(std::span<const LogitAdjustment> adjustments, MatrixView<float> logits);

}  // namespace baton::kernels
