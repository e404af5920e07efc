#include "kernels/logit_adjustments.h"

#include "common/base/check.h"

namespace baton::kernels {

void AdjustLogits(std::span<const LogitAdjustment> adjustments, MatrixView<float> logits) {
  for (const LogitAdjustment& adjustment : adjustments) {
    BATON_CHECK(adjustment.row >= 0 && adjustment.row < logits.rows && adjustment.token >= 0 &&
                adjustment.token < logits.cols)
        << "row " << adjustment.row << " of " << logits.rows << ", token " << adjustment.token
        << " of " << logits.cols;
    float& logit = logits.Row(adjustment.row)[adjustment.token];
    const float scaled = logit > 0 ? logit / adjustment.repetition : logit * adjustment.repetition;
    logit = scaled + adjustment.add;
  }
}

}  // namespace baton::kernels
