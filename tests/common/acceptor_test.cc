#include "common/acceptor.h"

#include <thread>

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include "gtest/gtest.h"

namespace baton {
namespace {

// At a port of its choice; it listens only if told to.
Fd Bound(bool listens, sockaddr_in* address) {
  Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  *address = {};
  address->sin_family = AF_INET;
  address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(*address);
  EXPECT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(address), size), 0);
  EXPECT_EQ(getsockname(fd.get(), reinterpret_cast<sockaddr*>(address), &size), 0);
  EXPECT_TRUE(!listens || listen(fd.get(), 1) == 0);
  return fd;
}

// Poll would return at once, again and again, for what cannot be taken.
TEST(AcceptorTest, WhenNothingCanBeAcceptedItIsNotWatchedForAMoment) {
  sockaddr_in address;
  // Does not listen: as good a reason as having no descriptors left.
  Acceptor acceptor("test", Bound(/*listens=*/false, &address));
  EXPECT_GE(acceptor.watched(), 0);
  const auto began = Clock::Real().Now();
  EXPECT_FALSE(acceptor.Accept().valid());
  while (acceptor.watched() < 0) std::this_thread::yield();
  EXPECT_GE(Clock::Real().Now() - began, kAcceptPause);
}

TEST(AcceptorTest, ThatNobodyIsThereIsNoTrouble) {
  sockaddr_in address;
  Acceptor acceptor("test", Bound(/*listens=*/true, &address));
  EXPECT_FALSE(acceptor.Accept().valid());
  const Fd client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(connect(client.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  pollfd watched{acceptor.watched(), POLLIN, 0};
  ASSERT_EQ(poll(&watched, 1, /*timeout=*/10'000), 1);
  EXPECT_TRUE(acceptor.Accept().valid());
}

}  // namespace
}  // namespace baton
