#include "router/config.h"

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

}  // namespace
}  // namespace baton::router
