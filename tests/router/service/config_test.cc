#include "router/config.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "router/router.h"
#include "tests/testing/status_matchers.h"

namespace baton::router {
namespace {

using baton::testing::IsOk;
using baton::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(RouterConfigTest, TheShippedFileIsValid) {
  RouterConfig config;
  ConfigParser parser("baton-router", "");
  BindRouterConfig(config, parser);
  EXPECT_THAT(parser.ParseFile(BATON_SOURCE_DIR "/deploy/configs/router.yaml"), IsOk());
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
    EXPECT_THAT(parser.Parse(2, argv),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(name + ": ")))
        << flag;
  }
}

TEST(RouterConfigTest, AddressesAreGivenOnce) {
  const auto refusal = [](std::vector<const char*> flags) {
    RouterConfig config;
    ConfigParser parser("baton-router", "");
    BindRouterConfig(config, parser);
    flags.insert(flags.begin(), {"baton-router", "--model-dir=m"});
    return parser.Parse(static_cast<int>(flags.size()), flags.data()).status();
  };
  const auto says = [](const char* text) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text));
  };
  EXPECT_THAT(refusal({"--decode-workers=a:1", "--grpc-listen=0.0.0.0:9000"}),
              says("grpc-listen is 0.0.0.0:9000 and metrics-listen is 127.0.0.1:9000"));
  EXPECT_THAT(refusal({"--decode-workers=a:1,a:2", "--prefill-workers=dns:a:2"}),
              says("prefill-workers and decode-workers both have a:2"));
  EXPECT_THAT(refusal({"--decode-workers=a:1,b:2", "--prefill-workers=a:2,b:1"}), IsOk());
}

TEST(RouterConfigTest, AnInspectionNamesAllThatAStartWouldRefuse) {
  RouterConfig config;
  config.model_dir = BATON_SOURCE_DIR "/models/needle-17m";
  config.decode_workers = {"a:1"};
  const auto inspect = [&] {
    ErrorList errors;
    Router::Inspect(config, errors);
    return errors.ToStatus();
  };
  EXPECT_THAT(inspect(), IsOk());
  config.model_dir = "/nonexistent";
  config.api_keys_file = "/nonexistent/keys";
  config.tls.files.ca = "/nonexistent/ca.crt";
  config.api_tls = {.certificate = "/nonexistent/api.crt", .key = "/nonexistent/api.key"};
  EXPECT_THAT(inspect(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("5 errors:"), HasSubstr("give all three or none"),
                             HasSubstr("/nonexistent/api."), HasSubstr("/nonexistent/keys"),
                             HasSubstr("/nonexistent/tokenizer.json"))));
}

}  // namespace
}  // namespace baton::router
