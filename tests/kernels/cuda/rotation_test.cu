#include <cmath>
#include <vector>

#include "kernels/cuda/device/rotation.cuh"
#include "kernels/rope.h"
#include "tests/kernels/cuda/support.h"

namespace baton::kernels::cuda {
namespace {

__global__ void CosSinKernel(const float* angles, int64_t count, CosSin* results) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) results[i] = CosSinOf(angles[i]);
}

class RotationTest : public CudaTest {
 protected:
  static std::vector<CosSin> OnDevice(const std::vector<float>& angles) {
    constexpr int kThreads = 128;
    const auto count = static_cast<int64_t>(angles.size());
    const DeviceArray<float> device_angles(angles);
    DeviceArray<CosSin> results(count);
    CosSinKernel<<<static_cast<unsigned>((count + kThreads - 1) / kThreads), kThreads, 0,
                   TestStream().get()>>>(device_angles.get(), count, results.get());
    return results.Download();
  }
};

TEST_F(RotationTest, AnglesOfPositionsUpToAMillionAreOffBy2ToTheMinus20AtMost) {
  for (const RopeConfig& config : {RopeConfig{.theta = 160000, .factor = 16}, RopeConfig{}}) {
    const RopeTable table(config);
    std::vector<float> angles;
    for (int64_t position = 0; position < 1 << 20; position += position < 1024 ? 1 : 37) {
      for (const float frequency : table.frequencies()) {
        angles.push_back(static_cast<float>(position) * frequency);
      }
    }
    for (const float frequency : table.frequencies()) angles.push_back(0x1p20f * frequency);
    const std::vector<CosSin> results = OnDevice(angles);
    double largest = 0;
    double sum = 0;
    for (size_t i = 0; i < angles.size(); ++i) {
      const double cosine = std::abs(results[i].cosine - std::cos(double{angles[i]}));
      const double sine = std::abs(results[i].sine - std::sin(double{angles[i]}));
      largest = std::max({largest, cosine, sine});
      sum += cosine + sine;
    }
    EXPECT_LE(largest, 0x1p-20);
    EXPECT_LE(sum / static_cast<double>(2 * angles.size()), 0x1p-22);
  }
}

TEST_F(RotationTest, NoAngleIsNoRotation) {
  const std::vector<CosSin> results = OnDevice({0.0f});
  EXPECT_EQ(results[0].cosine, 1.0f);
  EXPECT_EQ(results[0].sine, 0.0f);
}

}  // namespace
}  // namespace baton::kernels::cuda
