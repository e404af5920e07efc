#include "kernels/cuda/logit_adjustments.h"

#include <vector>

#include "tests/kernels/cuda/support.h"
#include "tests/kernels/logit_adjustments_case.h"

namespace baton::kernels::cuda {
namespace {

class CudaLogitAdjustmentsTest : public CudaTest {};

TEST_F(CudaLogitAdjustmentsTest, HasTheHostsBitsAndPutsBackWhatWasThere) {
  for (const LogitAdjustmentsCase& shape : kLogitAdjustmentsCases) {
    const std::vector<float> logits = shape.Logits();
    const std::vector<LogitAdjustment> adjustments = shape.Adjustments();
    const DeviceArray<float> device_logits(logits);
    const DeviceArray<LogitAdjustment> device_adjustments(adjustments);
    const DeviceArray<float> before(std::ssize(adjustments));
    const AdjustLogitsParams params{.logits = {device_logits.get(), shape.rows, shape.vocabulary},
                                    .adjustments = device_adjustments.get(),
                                    .before = before.get(),
                                    .count = std::ssize(adjustments)};
    AdjustLogits(params, TestStream().get());
    std::vector<float> expected = logits;
    kernels::AdjustLogits(adjustments, View(expected, shape.rows, shape.vocabulary));
    EXPECT_EQ(CountDifferent(device_logits.Download(), expected), 0) << adjustments.size();
    RestoreLogits(params, TestStream().get());
    EXPECT_EQ(CountDifferent(device_logits.Download(), logits), 0) << adjustments.size();
  }
}

TEST_F(CudaLogitAdjustmentsTest, NoneChangeNothing) {
  const std::vector<float> logits = RandomValues<float>(100, 1);
  const DeviceArray<float> device_logits(logits);
  AdjustLogits({.logits = {device_logits.get(), 1, 100}}, TestStream().get());
  EXPECT_EQ(device_logits.Download(), logits);
}

}  // namespace
}  // namespace baton::kernels::cuda
