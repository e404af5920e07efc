#include "decode/config.h"

#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace baton::decode {
namespace {

using ::baton::testing::IsOk;
using ::baton::testing::StatusIs;
using ::testing::HasSubstr;

absl::StatusOr<ParseOutcome> Parse(DecodeConfig& config, std::vector<const char*> flags) {
  ConfigParser parser("baton-decode", "Decodes.");
  BindDecodeConfig(config, parser);
  flags.insert(flags.begin(), "baton-decode");
  return parser.Parse(static_cast<int>(flags.size()), flags.data());
}

TEST(DecodeConfigTest, TheShippedFileIsValid) {
  DecodeConfig config;
  ConfigParser parser("baton-decode", "Decodes.");
  BindDecodeConfig(config, parser);
  EXPECT_THAT(parser.ParseFile(BATON_SOURCE_DIR "/deploy/configs/decode.yaml"), IsOk());
  EXPECT_EQ(config.listen, "0.0.0.0:7002");
  EXPECT_EQ(config.engine.slots, 64);
  EXPECT_THAT(engine::MakeEngineOptions(config.engine), IsOk());
}

TEST(DecodeConfigTest, TheModelIsTheOnlyThingThatMustBeGiven) {
  DecodeConfig config;
  EXPECT_THAT(Parse(config, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("model-dir")));
  EXPECT_THAT(Parse(config, {"--model-dir=models/needle-17m"}), IsOk());
}

TEST(DecodeConfigTest, FlagsReachTheStructs) {
  DecodeConfig config;
  ASSERT_THAT(Parse(config, {"--model-dir=m", "--queue-limit=3", "--growth-tokens=128",
                             "--handoff-timeout=250ms", "--kv-cache-dtype=fp8",
                             "--advertise=10.0.0.1:7002"}),
              IsOk());
  EXPECT_EQ(config.queue_limit, 3);
  EXPECT_EQ(config.growth_tokens, 128);
  EXPECT_EQ(config.handoff_timeout, std::chrono::milliseconds(250));
  EXPECT_EQ(config.advertise, "10.0.0.1:7002");
  EXPECT_EQ(engine::MakeEngineOptions(config.engine)->cache.kv_format,
            kernels::EntryFormat::kFp8Packed);
}

TEST(DecodeConfigTest, BadValuesAreRefusedByName) {
  DecodeConfig config;
  EXPECT_THAT(Parse(config, {"--model-dir=m", "--queue-limit=0"}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("queue-limit")));
  EXPECT_THAT(Parse(config, {"--model-dir=m", "--index-cache-dtype=fp7"}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("index-cache-dtype")));
}

}  // namespace
}  // namespace baton::decode
