#include "common/shutdown_signal.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include <unistd.h>

#include "gtest/gtest.h"

namespace baton {
namespace {

void WriteToNobody() {
  const ShutdownSignal shutdown;
  int ends[2];
  if (pipe(ends) != 0) std::_Exit(1);
  close(ends[0]);
  std::_Exit(write(ends[1], "x", 1) < 0 && errno == EPIPE ? 0 : 1);
}

TEST(ShutdownSignalDeathTest, AReaderOfTheOutputThatGoesAwayEndsNothing) {
  EXPECT_EXIT(WriteToNobody(), ::testing::ExitedWithCode(0), "");
}

void StartForever() {
  const ShutdownSignal shutdown;
  const EndAtShutdownSignal end(shutdown,
                                [](int signal) { std::fprintf(stderr, "got %d", signal); });
  kill(getpid(), SIGTERM);
  for (;;) pause();
}

TEST(ShutdownSignalDeathTest, ASignalEndsAProcessThatIsStillStarting) {
  EXPECT_EXIT(StartForever(), ::testing::KilledBySignal(SIGTERM), "got 15");
}

// Inherited, as by a background job of a script.
void StartForeverIgnoring() {
  std::signal(SIGTERM, SIG_IGN);
  StartForever();
}

TEST(ShutdownSignalDeathTest, ASignalThatWasIgnoredEndsItToo) {
  EXPECT_EXIT(StartForeverIgnoring(), ::testing::KilledBySignal(SIGTERM), "got 15");
}

void StartThenWait() {
  ShutdownSignal shutdown;
  {
    const EndAtShutdownSignal end(shutdown, [](int) { std::_Exit(1); });
  }
  kill(getpid(), SIGINT);
  std::_Exit(shutdown.Wait() == SIGINT ? 0 : 1);
}

TEST(ShutdownSignalDeathTest, OnceStartedASignalIsWaitedFor) {
  EXPECT_EXIT(StartThenWait(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace baton
