#include "cli/json_dump.h"

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace baton::cli {
namespace {

TEST(JsonDumpTest, WhatIsNotUtf8IsReplacedInsteadOfThrowing) {
  const nlohmann::ordered_json json = {{"log_end", "half \xe2\x82, Latin \xe9"}, {"pid", 1}};
  EXPECT_EQ(Dump(json), "{\"log_end\":\"half \xef\xbf\xbd, Latin \xef\xbf\xbd\",\"pid\":1}");
  EXPECT_EQ(Dump(nlohmann::json::array({1}), 1), "[\n 1\n]");
}

}  // namespace
}  // namespace baton::cli
