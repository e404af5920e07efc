#include "router/config.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace baton::router {
namespace {

TEST(RouterConfigTest, TheShippedFileIsValid) {
  RouterConfig config;
  ConfigParser parser("baton-router", "");
  BindRouterConfig(config, parser);
  EXPECT_THAT(parser.ParseFile(BATON_SOURCE_DIR "/deploy/configs/router.yaml"),
              baton::testing::IsOk());
  EXPECT_EQ(config.prefill_workers.size(), 2u);
  EXPECT_EQ(config.request_timeout, std::chrono::minutes(10));
}

TEST(RouterConfigTest, AddressesThatCannotBeAreRefusedWithTheirFlag) {
  for (const char* flag :
       {"--listen=127.0.0.1:99999", "--grpc-listen=127.0.0.1:70000", "--metrics-listen=nowhere",
        "--decode-workers=foo", "--prefill-workers=a:1,a:99999", "--prefill-workers=,,"}) {
    RouterConfig config;
    ConfigParser parser("baton-router", "");
    BindRouterConfig(config, parser);
    const char* const argv[] = {"baton-router", flag};
    const std::string name(flag, std::string(flag).find('='));
    EXPECT_THAT(parser.Parse(2, argv), baton::testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                                                ::testing::HasSubstr(name + ": ")))
        << flag;
  }
}

}  // namespace
}  // namespace baton::router
