#include "common/rpc/message_memory.h"

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <malloc.h>
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

// As glibc tells of itself.
int CountHeaps() {
  char* text = nullptr;
  size_t size = 0;
  std::FILE* const file = open_memstream(&text, &size);
  malloc_info(0, file);
  std::fclose(file);
  int heaps = 0;
  for (const char* at = text; (at = std::strstr(at, "<heap nr=")) != nullptr; ++at) ++heaps;
  std::free(text);
  return heaps;
}

// What is kept is bounded by their number. A machine of four cores or fewer has no more by itself.
TEST(MessageMemoryTest, ManyThreadsShareFewHeaps) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer has an allocator of its own";
#endif
  KeepMessageMemory();
  constexpr int kThreads = 100;
  std::latch all_have_some(kThreads);
  std::latch counted(1);
  std::vector<std::jthread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      const std::string some(100'000, 'x');
      all_have_some.count_down();
      counted.wait();
    });
  }
  all_have_some.wait();
  const int heaps = CountHeaps();
  counted.count_down();
  EXPECT_GT(heaps, 1);
  EXPECT_LE(heaps, 32);
}

}  // namespace
}  // namespace baton::rpc
