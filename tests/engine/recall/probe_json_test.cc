#include "engine/recall/probe_json.h"

#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace baton::engine {
namespace {

using ::baton::testing::IsOk;
using ::testing::HasSubstr;

TEST(ProbeJsonTest, ReadsEveryKeyOfARequest) {
  const auto request = ParseProbeRequest(
      R"({"prompt": [0, 3, 17], "needle": [1, 2], "max_tokens": 5, "explain": true})");
  ASSERT_THAT(request, IsOk());
  EXPECT_EQ(request->prompt, (std::vector<int32_t>{0, 3, 17}));
  EXPECT_EQ(request->needle, (IndexRange{1, 2}));
  EXPECT_EQ(request->max_tokens, 5);
  EXPECT_TRUE(request->explain);
}

TEST(ProbeJsonTest, NamesTheKeyThatIsWrong) {
  const auto message = [](absl::string_view line) {
    return std::string(ParseProbeRequest(line).status().message());
  };
  EXPECT_THAT(message("[]"), HasSubstr("object"));
  EXPECT_THAT(message("{}"), HasSubstr("\"prompt\""));
  EXPECT_THAT(message(R"({"prompt": [0, -1]})"), HasSubstr("\"prompt\""));
  EXPECT_THAT(message(R"({"prompt": [0], "needle": [1]})"), HasSubstr("\"needle\""));
  EXPECT_THAT(message(R"({"prompt": [0], "max_tokens": 1e20})"), HasSubstr("\"max_tokens\""));
  EXPECT_THAT(message(R"({"prompt": [0], "explain": 1})"), HasSubstr("\"explain\""));
  EXPECT_THAT(message(R"({"prompt": [0], "promt": [0]})"), HasSubstr("\"promt\""));
}

TEST(ProbeJsonTest, AnAnswerIsJsonWhateverTheScores) {
  ProbeAnswer answer;
  EntryReport entry;
  entry.score = std::numeric_limits<float>::quiet_NaN();
  answer.rows = {{.position = 7, .token = 3, .layers = {{.layer = 2, .needle = {entry}}}}};
  answer.handoff = {{.stream = CacheStream::kIndexKey, .records = 9, .different = 1}};
  const auto json = nlohmann::json::parse(ToJson(answer).dump());
  EXPECT_TRUE(json["rows"][0]["layers"][0]["needle"][0]["score"].is_null());
  EXPECT_EQ(json["handoff"][0]["stream"], "index_key");
}

}  // namespace
}  // namespace baton::engine
