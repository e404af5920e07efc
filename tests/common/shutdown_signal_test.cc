#include "common/shutdown_signal.h"

#include <cerrno>
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

}  // namespace
}  // namespace baton
