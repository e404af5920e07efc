#include "kernels/cuda/router.h"

#include <limits>

#include "kernels/router.h"
#include "tests/kernels/cuda/support.h"

namespace baton::kernels::cuda {
namespace {

class RouterTest : public CudaTest {
 protected:
  // Runs both versions on a score layer.
  void ExpectSame(const std::vector<float>& logits, const std::vector<float>& bias, int64_t rows,
                  int k) {
    const auto experts = static_cast<int64_t>(bias.size());
    std::vector<int32_t> ids(rows * k);
    std::vector<float> weights(rows * k);
    kernels::Router({.logits = View(logits, rows, experts),
                     .bias = bias,
                     .scale = 1.5f,
                     .experts = View(ids, rows, k),
                     .weights = View(weights, rows, k)},
                    TestPool());
    const DeviceArray<float> device_logits(logits), device_bias(bias);
    DeviceArray<int32_t> device_ids(rows * k);
    DeviceArray<float> device_weights(rows * k);
    Router({.logits = {device_logits.get(), rows, experts},
            .bias = device_bias.get(),
            .scale = 1.5f,
            .experts = {device_ids.get(), rows, k},
            .weights = {device_weights.get(), rows, k}},
           TestStream().get());
    EXPECT_EQ(CountDifferent(device_ids.Download(), ids), 0);
    EXPECT_LE(RelativeError(device_weights.Download(), weights), 1e-6);
  }
};

TEST_F(RouterTest, ChoosesAndWeighsAsTheReference) {
  struct Shape {
    int64_t rows;
    int experts, k;
  };
  for (const auto& [rows, experts, k] :
       {Shape{0, 256, 6}, Shape{1, 8, 2}, Shape{5, 8, 2}, Shape{301, 256, 6}, Shape{33, 384, 6}}) {
    ExpectSame(RandomValues<float>(rows * experts, 1, 4.0f), RandomValues<float>(experts, 2, 0.1f),
               rows, k);
  }
}

TEST_F(RouterTest, TiesGoToTheLowerExpertAndLargeLogitsDoNotOverflow) {
  std::vector<float> logits(64, -500.0f);
  for (const int expert : {3, 17, 40, 63}) logits[expert] = 500.0f;
  ExpectSame(logits, std::vector<float>(64, 0.0f), 1, 6);
}

TEST_F(RouterTest, HashLayersTakeTheExpertsOfTheTokenAndPaddedRowsNone) {
  const int64_t rows = 3, experts = 32, k = 4;
  const auto logits = RandomValues<float>(rows * experts, 3);
  const std::vector<int32_t> table = {5, 31, 0, 8, 9, 2, 30, 1};
  const std::vector<int32_t> tokens = {1, 0, 1}, sequence = {0, 4, -1};
  std::vector<int32_t> ids(2 * k);
  std::vector<float> weights(2 * k);
  kernels::Router({.logits = View(logits, rows, experts).Rows(0, 2),
                   .hash_experts = View(table, 2, k),
                   .tokens = std::span(tokens).first(2),
                   .scale = 2.5f,
                   .experts = View(ids, 2, k),
                   .weights = View(weights, 2, k)},
                  TestPool());
  ids.resize(rows * k, -1);
  weights.resize(rows * k, 0.0f);

  const DeviceArray<float> device_logits(logits);
  const DeviceArray<int32_t> device_table(table), device_tokens(tokens), device_sequence(sequence);
  DeviceArray<int32_t> device_ids(rows * k);
  DeviceArray<float> device_weights(rows * k);
  Router({.logits = {device_logits.get(), rows, experts},
          .hash_experts = {device_table.get(), 2, k},
          .tokens = device_tokens.get(),
          .sequence = device_sequence.get(),
          .scale = 2.5f,
          .experts = {device_ids.get(), rows, k},
          .weights = {device_weights.get(), rows, k}},
         TestStream().get());
  EXPECT_EQ(device_ids.Download(), ids);
  EXPECT_LE(RelativeError(device_weights.Download(), weights), 1e-6);
}

TEST_F(RouterTest, NanAmongTheLogitsShowsInTheWeights) {
  std::vector<float> logits = RandomValues<float>(64, 4);
  logits[50] = std::numeric_limits<float>::quiet_NaN();
  const DeviceArray<float> device_logits(logits), bias(std::vector<float>(64, 0.0f));
  DeviceArray<int32_t> ids(2);
  DeviceArray<float> weights(2);
  weights.Fill(0);
  Router({.logits = {device_logits.get(), 1, 64},
          .bias = bias.get(),
          .experts = {ids.get(), 1, 2},
          .weights = {weights.get(), 1, 2}},
         TestStream().get());
  EXPECT_TRUE(std::isnan(weights.Download()[0]));
}

}  // namespace
}  // namespace baton::kernels::cuda
