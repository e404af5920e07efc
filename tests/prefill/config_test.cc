#include "prefill/config.h"

#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace baton::prefill {
namespace {

using ::baton::testing::IsOk;
using ::baton::testing::StatusIs;
using ::testing::HasSubstr;

TEST(PrefillConfigTest, TheShippedFileIsValid) {
  PrefillConfig config;
  ConfigParser parser("baton-prefill", "Prefills.");
  BindPrefillConfig(config, parser);
  EXPECT_THAT(parser.ParseFile(BATON_SOURCE_DIR "/deploy/configs/prefill.yaml"), IsOk());
  EXPECT_EQ(config.listen, "0.0.0.0:7001");
  EXPECT_EQ(config.max_ungranted, 50);
  EXPECT_THAT(engine::MakeEngineOptions(config.engine), IsOk());
}

TEST(PrefillConfigTest, BadValuesAreRefusedByName) {
  PrefillConfig config;
  ConfigParser parser("baton-prefill", "Prefills.");
  BindPrefillConfig(config, parser);
  const char* flags[] = {"baton-prefill", "--model-dir=m", "--max-ungranted=101"};
  EXPECT_THAT(parser.Parse(3, flags),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("max-ungranted")));
}

}  // namespace
}  // namespace baton::prefill
