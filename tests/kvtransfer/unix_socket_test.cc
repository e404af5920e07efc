#include "kvtransfer/shm/unix_socket.h"

#include <array>
#include <cstring>
#include <filesystem>
#include <iterator>

#include <sys/socket.h>

#include "absl/strings/str_cat.h"
#include "common/acceptor.h"
#include "common/ids.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace baton::kvtransfer::shm {
namespace {

using ::baton::testing::IsOk;
using ::baton::testing::StatusIs;
using ::testing::HasSubstr;

std::ptrdiff_t OpenDescriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

class UnixSocketTest : public ::testing::Test {
 protected:
  UnixSocketTest() {
    const std::string name = absl::StrCat("baton-test-", NewIncarnation());
    Acceptor acceptor("test", *Listen(name));
    client_ = *Connect(name);
    server_ = acceptor.Accept();
    EXPECT_TRUE(server_.valid());
  }

  // A message of one byte, with so many descriptors.
  void SendWith(size_t descriptors) {
    std::byte byte{7};
    iovec part{&byte, 1};
    alignas(cmsghdr) std::array<char, 256> control = {};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = CMSG_SPACE(descriptors * sizeof(int));
    cmsghdr* const attached = CMSG_FIRSTHDR(&header);
    attached->cmsg_level = SOL_SOCKET;
    attached->cmsg_type = SCM_RIGHTS;
    attached->cmsg_len = CMSG_LEN(descriptors * sizeof(int));
    const std::vector<int> passed(descriptors, client_.get());
    std::memcpy(CMSG_DATA(attached), passed.data(), descriptors * sizeof(int));
    ASSERT_EQ(sendmsg(client_.get(), &header, 0), 1);
  }

  Fd client_;
  Fd server_;
  std::array<std::byte, 8> message_{};
};

TEST_F(UnixSocketTest, AMessageComesWithTheDescriptorThatWasPassed) {
  const auto nothing = Receive(server_, message_);
  ASSERT_THAT(nothing, IsOk());
  EXPECT_FALSE(nothing->has_value());
  SendWith(1);
  const auto received = Receive(server_, message_);
  ASSERT_THAT(received, IsOk());
  ASSERT_TRUE(received->has_value());
  EXPECT_EQ((*received)->bytes, 1u);
  EXPECT_EQ(message_[0], std::byte{7});
  EXPECT_TRUE((*received)->passed.valid());
}

// Every one that is let in and not owned would be lost until the process ends.
TEST_F(UnixSocketTest, DescriptorsThatNobodyAskedForAreNotKept) {
  const std::ptrdiff_t before = OpenDescriptors();
  for (const size_t descriptors : {2, 3, 10}) {
    SendWith(descriptors);
    EXPECT_THAT(Receive(server_, message_),
                StatusIs(absl::StatusCode::kUnavailable, HasSubstr("too long")))
        << descriptors;
    EXPECT_EQ(OpenDescriptors(), before) << descriptors;
  }
}

TEST_F(UnixSocketTest, WhoHasLeftIsUnavailable) {
  client_ = Fd();
  EXPECT_THAT(Receive(server_, message_),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("closed")));
  EXPECT_THAT(Send(server_, message_), StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(UnixSocketTest, AMessageThatDoesNotFitIsUnavailable) {
  const std::array<std::byte, 9> longer{};
  ASSERT_THAT(Send(client_, longer), IsOk());
  EXPECT_THAT(Receive(server_, message_),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("too long")));
}

TEST(UnixSocketNameTest, NobodyListensThereOrSomebodyElseDoes) {
  const std::string name = absl::StrCat("baton-test-", NewIncarnation());
  EXPECT_THAT(Connect(name), StatusIs(absl::StatusCode::kUnavailable, HasSubstr(name)));
  const auto listener = Listen(name);
  ASSERT_THAT(listener, IsOk());
  EXPECT_THAT(Listen(name), StatusIs(absl::StatusCode::kUnavailable, HasSubstr(name)));
}

}  // namespace
}  // namespace baton::kvtransfer::shm
