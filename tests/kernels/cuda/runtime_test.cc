#include <limits>

#include "kernels/runtime/buffer.h"
#include "kernels/runtime/error.h"
#include "kernels/runtime/event.h"
#include "tests/kernels/cuda/support.h"

namespace baton::kernels::cuda {
namespace {

class RuntimeTest : public CudaTest {};

TEST_F(RuntimeTest, CopiesThroughPinnedAndDeviceMemory) {
  constexpr int64_t kBytes = 1000;
  auto host = PinnedBuffer::Allocate(2 * kBytes);
  auto device = DeviceBuffer::Allocate(kBytes);
  ASSERT_TRUE(host && device);
  for (int64_t i = 0; i < kBytes; ++i) host->data()[i] = std::byte(i * 7);
  Stream stream;
  CopyAsync(device->data(), host->data(), kBytes, stream.get());
  CopyAsync(host->data() + kBytes, device->data(), kBytes, stream.get());
  stream.Synchronize();
  EXPECT_EQ(std::memcmp(host->data(), host->data() + kBytes, kBytes), 0);
}

TEST_F(RuntimeTest, AllocationThatCannotFitIsReportedAndLeavesNoError) {
  EXPECT_FALSE(DeviceBuffer::Allocate(int64_t{1} << 46));
  CheckLaunch("nothing");
  EXPECT_TRUE(DeviceBuffer::Allocate(256));
}

TEST_F(RuntimeTest, AllocationOfNothingIsEmpty) {
  const auto buffer = DeviceBuffer::Allocate(0);
  ASSERT_TRUE(buffer);
  EXPECT_EQ(buffer->data(), nullptr);
}

TEST_F(RuntimeTest, StreamWaitsForTheEventOfAnother) {
  auto device = DeviceBuffer::Allocate(int64_t{64} << 20);
  ASSERT_TRUE(device);
  Stream producer;
  Stream consumer;
  Event filled;
  for (int i = 0; i < 50; ++i) FillAsync(device->data(), 1, device->size(), producer.get());
  FillAsync(device->data(), 42, device->size(), producer.get());
  filled.Record(producer.get());
  consumer.Wait(filled);
  std::byte last{0};
  CopyAsync(&last, device->data() + device->size() - 1, 1, consumer.get());
  consumer.Synchronize();
  EXPECT_TRUE(filled.Done());
  EXPECT_EQ(last, std::byte{42});
}

TEST(RuntimeDeathTest, ErrorNamesCallCodeAndPlace) {
  EXPECT_DEATH(CheckCuda(1, "cudaThing"), "cudaThing: cudaErrorInvalidValue .*runtime_test.cc:");
}

}  // namespace
}  // namespace baton::kernels::cuda
