#include "common/host_port.h"

#include "gmock/gmock.h"
#include "tests/testing/status_matchers.h"

namespace baton {
namespace {

using ::baton::testing::StatusIs;
using ::testing::HasSubstr;

TEST(HostPortTest, NamesAndAddressesOfBothKindsAreTaken) {
  struct Case {
    const char* text;
    const char* host;
    uint16_t port;
  };
  for (const Case& c :
       {Case{"127.0.0.1:0", "127.0.0.1", 0}, Case{"decode-0:7002", "decode-0", 7002},
        Case{"[::1]:65535", "::1", 65535}, Case{"[::]:80", "::", 80}}) {
    BATON_ASSERT_OK_AND_ASSIGN(const HostPort parsed, ParseHostPort(c.text));
    EXPECT_EQ(parsed.host, c.host) << c.text;
    EXPECT_EQ(parsed.port, c.port) << c.text;
  }
}

TEST(HostPortTest, AnythingElseIsRefusedByName) {
  for (const char* text : {"", ":", "host", "host:", ":7000", "127.0.0.1:65536", "127.0.0.1:99999",
                           "host:-1", "host:+1", "host: 1", "host:70x", "::1:7000", "[::1]", "[]:1",
                           "[::1:7000", "a b:1", "host:99999999999999999999"}) {
    EXPECT_THAT(ParseHostPort(text), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text)))
        << text;
  }
}

TEST(HostPortTest, AHostMayGetAnotherPort) {
  EXPECT_EQ(HostPart("worker.example:7002"), "worker.example");
  EXPECT_EQ(HostPart("[::1]:7002"), "[::1]");
  EXPECT_EQ(WithPort("127.0.0.1:0", 7002), "127.0.0.1:7002");
  EXPECT_EQ(WithPort("[::1]:0", 7002), "[::1]:7002");
}

TEST(HostPortTest, APortIsListenedOnOnceAtAnAddress) {
  const auto apart = [](const char* a, const char* b) {
    return CheckListensApart({{"first", "127.0.0.1:1"}, {"listen", a}, {"metrics-listen", b}});
  };
  EXPECT_THAT(apart("127.0.0.1:7", "127.0.0.1:7"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "listen is 127.0.0.1:7 and metrics-listen is 127.0.0.1:7: the same port "
                       "cannot serve both"));
  EXPECT_FALSE(apart("0.0.0.0:7", "127.0.0.1:7").ok());
  EXPECT_FALSE(apart("10.0.0.1:1", "[::]:1").ok());
  EXPECT_TRUE(apart("127.0.0.1:7", "127.0.0.1:8").ok());
  EXPECT_TRUE(apart("127.0.0.1:7", "10.0.0.1:7").ok());
  EXPECT_TRUE(apart("127.0.0.1:0", "127.0.0.1:0").ok()) << "the kernel chooses";
  EXPECT_TRUE(apart("127.0.0.1:7", "").ok()) << "not served";
}

TEST(HostPortTest, AllAddressesOfAMachineAreNoName) {
  for (const char* any : {"0.0.0.0", "::", "[::]", "*"}) EXPECT_TRUE(IsAnyAddress(any)) << any;
  for (const char* one : {"127.0.0.1", "[::1]", "worker"}) EXPECT_FALSE(IsAnyAddress(one)) << one;
}

}  // namespace
}  // namespace baton
