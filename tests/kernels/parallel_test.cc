#include "kernels/parallel.h"

#include <atomic>
#include <vector>

#include <gtest/gtest.h>

namespace baton::kernels {
namespace {

TEST(ThreadPoolTest, NoWorkCallsNothing) {
  ThreadPool pool(2);
  pool.For(0, 4, [](int64_t, int64_t) { FAIL(); });
}

TEST(ThreadPoolTest, EveryItemIsVisitedOnceInRangesOfAtMostTheGrain) {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (const int64_t count : {1, 3, 4, 5, 1000}) {
      std::vector<std::atomic<int>> visits(count);
      pool.For(count, 4, [&](int64_t begin, int64_t end) {
        EXPECT_EQ(begin % 4, 0);
        EXPECT_LE(end - begin, 4);
        for (int64_t i = begin; i < end; ++i) ++visits[i];
      });
      for (const auto& visit : visits) EXPECT_EQ(visit, 1);
    }
  }
}

TEST(ThreadPoolTest, WorkIsVisibleToTheCallerAfterwards) {
  ThreadPool pool(3);
  std::vector<int64_t> squares(100);
  for (int round = 0; round < 200; ++round) {
    pool.For(100, 1, [&](int64_t begin, int64_t) { squares[begin] = begin * round; });
    for (int64_t i = 0; i < 100; ++i) ASSERT_EQ(squares[i], i * round);
  }
}

TEST(ThreadPoolTest, ZeroThreadsMeansOnePerCore) {
  ThreadPool pool(0);
  EXPECT_GE(pool.threads(), 1);
}

}  // namespace
}  // namespace baton::kernels
