#include <cstdint>
#include <vector>

#include "kernels/cuda/device/close_launch.cuh"
#include "kernels/runtime/buffer.h"
#include "kernels/runtime/event.h"
#include "kernels/runtime/graph.h"
#include "kernels/runtime/stream.h"
#include "tests/kernels/cuda/support.h"

namespace baton::kernels::cuda {
namespace {

constexpr int kBlocks = 64;
constexpr int kThreads = 128;
constexpr int64_t kBytes = int64_t{kBlocks} * kThreads * sizeof(uint32_t);

__device__ void Pause(int clocks) {
  const long long begin = clock64();
  while (clock64() - begin < clocks) {
  }
}

__global__ void AddOne(const uint32_t* x, uint32_t* y, int clocks) {
  AwaitPredecessors();
  Pause(clocks);
  const int i = blockIdx.x * kThreads + threadIdx.x;
  y[i] = x[i] + 1;
}

__global__ void Add(const uint32_t* a, const uint32_t* b, uint32_t* y) {
  AwaitPredecessors();
  const int i = blockIdx.x * kThreads + threadIdx.x;
  y[i] = a[i] + b[i];
}

// Rounds of two lanes that part and join, as in a layer: everything that a kernel reads was written
// by another lane, by a copy or by a fill, and overwritten a moment later.
class TwoLanes {
 public:
  static constexpr int kRounds = 20;

  CUstream_st* main() const { return main_.get(); }

  void Issue() {
    constexpr LaunchShape kShape{.grid = dim3(kBlocks), .threads = kThreads};
    FillAsync(sum(), 0, kBytes, main_.get());
    LaunchClosely(AddOne, kShape, main_.get(), sum(), sum(), 3000);
    for (int round = 0; round < kRounds; ++round) {
      mark_.Record(main_.get());
      side_.Wait(mark_);
      LaunchClosely(AddOne, kShape, side_.get(), sum(), left(), round % 3 * 4000);
      LaunchClosely(AddOne, kShape, side_.get(), left(), left(), 2000);
      LaunchClosely(AddOne, kShape, main_.get(), sum(), right(), round % 2 * 5000);
      mark_.Record(side_.get());
      main_.Wait(mark_);
      LaunchClosely(Add, kShape, main_.get(), left(), right(), sum());
      if (round % 7 != 3) continue;
      CopyAsync(left(), sum(), kBytes, main_.get());
      FillAsync(sum(), 0, kBytes, main_.get());
      CopyAsync(sum(), left(), kBytes, main_.get());
    }
  }
  void ExpectSums() {
    uint32_t expected = 1;
    for (int round = 0; round < kRounds; ++round) expected = 2 * expected + 3;
    std::vector<uint32_t> sums(kBytes / sizeof(uint32_t));
    CopyAsync(sums.data(), sum(), kBytes, main_.get());
    main_.Synchronize();
    for (const uint32_t value : sums) ASSERT_EQ(value, expected);
  }

 private:
  uint32_t* sum() const { return memory_.As<uint32_t>(); }
  uint32_t* left() const { return sum() + kBytes / sizeof(uint32_t); }
  uint32_t* right() const { return left() + kBytes / sizeof(uint32_t); }

  const DeviceBuffer memory_ = *DeviceBuffer::Allocate(3 * kBytes);
  Stream main_;
  Stream side_;
  Event mark_;
};

class CloseLaunchTest : public CudaTest {};

TEST_F(CloseLaunchTest, AKernelSeesWhatAllBeforeItHaveWritten) {
  TwoLanes lanes;
  for (int i = 0; i < 20; ++i) lanes.Issue();
  lanes.ExpectSums();
}

TEST_F(CloseLaunchTest, AlsoInAGraph) {
  TwoLanes lanes;
  lanes.Issue();
  const Graph graph = Graph::Capture(lanes.main(), [&] { lanes.Issue(); });
  for (int i = 0; i < 200; ++i) graph.Launch(lanes.main());
  lanes.ExpectSums();
}

}  // namespace
}  // namespace baton::kernels::cuda
