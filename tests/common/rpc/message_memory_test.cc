#include "common/rpc/message_memory.h"

#include <cstddef>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include <sys/resource.h>

#include "gtest/gtest.h"

namespace baton::rpc {
namespace {

// As many pages as the kernel had to provide.
int64_t FaultsOf(size_t messages) {
  constexpr size_t kBytes = size_t{512} << 10;
  rusage before{};
  rusage after{};
  EXPECT_EQ(getrusage(RUSAGE_THREAD, &before), 0);
  std::vector<std::unique_ptr<char[]>> memory;
  for (size_t i = 0; i < messages; ++i) {
    memory.emplace_back(new char[kBytes]);
    std::memset(memory.back().get(), 1, kBytes);
  }
  EXPECT_EQ(getrusage(RUSAGE_THREAD, &after), 0);
  return after.ru_minflt - before.ru_minflt;
}

TEST(MessageMemoryTest, MessagesTakeTheMemoryOfThoseBefore) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer has an allocator of its own";
#endif
  KeepMessageMemory();
  int64_t first = 0;
  int64_t second = 0;
  // A heap of its own.
  std::thread([&] {
    first = FaultsOf(16);
    second = FaultsOf(16);
  }).join();
  EXPECT_LT(second, 100) << "of 2,048 pages; " << first << " before";
}

}  // namespace
}  // namespace baton::rpc
