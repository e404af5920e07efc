#include "common/ticker.h"

#include "common/mutex.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

TEST(TickerTest, TicksAgainAndAgainUntilDestroyed) {
  Mutex mutex;
  CondVar changed;
  int ticks = 0;
  {
    Ticker ticker(std::chrono::milliseconds(1), [&] {
      MutexLock lock(mutex);
      ++ticks;
      changed.NotifyAll();
    });
    MutexLock lock(mutex);
    while (ticks < 3) changed.Wait(mutex);
  }
  const int after = ticks;  // no lock: nobody ticks any more
  EXPECT_GE(after, 3);
}

TEST(TickerTest, TheDestructorDoesNotWaitForThePeriod) {
  Ticker ticker(std::chrono::hours(1), [] { FAIL() << "an hour has passed"; });
}

}  // namespace
}  // namespace baton
