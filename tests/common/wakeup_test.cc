#include "common/wakeup.h"

#include <thread>

#include <poll.h>
#include <sys/resource.h>

#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace baton {
namespace {

using ::baton::testing::StatusIs;

bool IsAwake(const Wakeup& wakeup, int timeout_ms = 0) {
  pollfd watched{wakeup.watched(), POLLIN, 0};
  return poll(&watched, 1, timeout_ms) == 1;
}

TEST(WakeupTest, AnyNumberOfWakesIsOne) {
  const auto wakeup = *Wakeup::Create();
  EXPECT_FALSE(IsAwake(wakeup));
  wakeup.Clear();  // nothing to clear is no error
  wakeup.Wake();
  wakeup.Wake();
  EXPECT_TRUE(IsAwake(wakeup));
  wakeup.Clear();
  EXPECT_FALSE(IsAwake(wakeup));
}

TEST(WakeupTest, WakesAThreadThatPolls) {
  const auto wakeup = *Wakeup::Create();
  std::jthread waker([&] { wakeup.Wake(); });
  EXPECT_TRUE(IsAwake(wakeup, /*timeout_ms=*/10'000));
}

TEST(WakeupTest, WithoutDescriptorsItIsAnError) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const auto wakeup = Wakeup::Create();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_THAT(wakeup, StatusIs(absl::StatusCode::kResourceExhausted));
}

}  // namespace
}  // namespace baton
