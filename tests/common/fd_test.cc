#include "common/fd.h"

#include <utility>

#include <fcntl.h>

#include "gtest/gtest.h"

namespace baton {
namespace {

int Open() { return open("/dev/null", O_RDONLY | O_CLOEXEC); }
bool IsOpen(int fd) { return fcntl(fd, F_GETFD) >= 0; }

TEST(FdTest, IsClosedWithItsOwner) {
  int number = -1;
  {
    const Fd fd(Open());
    ASSERT_TRUE(fd.valid());
    number = fd.get();
    EXPECT_TRUE(IsOpen(number));
  }
  EXPECT_FALSE(IsOpen(number));
}

TEST(FdTest, MovesFromOwnerToOwner) {
  Fd from(Open());
  const int number = from.get();
  Fd to(std::move(from));
  EXPECT_FALSE(from.valid());
  EXPECT_EQ(to.get(), number);
  to = Fd();  // whoever is assigned to lets go of what it had
  EXPECT_FALSE(to.valid());
  EXPECT_FALSE(IsOpen(number));
}

}  // namespace
}  // namespace baton
