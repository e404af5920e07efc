#include "cli/api_key.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/test_path.h"

namespace baton::cli {
namespace {

using baton::testing::IsOkAndHolds;
using baton::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class ApiKeyTest : public ::testing::Test {
 protected:
  ApiKeyTest() { unsetenv("BATON_API_KEY"); }
  ~ApiKeyTest() override {
    unsetenv("BATON_API_KEY");
    std::filesystem::remove(path_);
  }
  void Write(const std::string& text) { std::ofstream(path_) << text; }

  const std::string path_ = baton::testing::TestPath("api_key");
};

TEST_F(ApiKeyTest, WithoutAKeyNothingIsShown) { EXPECT_THAT(Authorization(""), IsOkAndHolds("")); }

TEST_F(ApiKeyTest, AFileWinsOverTheEnvironment) {
  setenv("BATON_API_KEY", "sk-environment", 1);
  EXPECT_THAT(Authorization(""), IsOkAndHolds("Bearer sk-environment"));
  Write("sk-file\n");
  EXPECT_THAT(Authorization(path_), IsOkAndHolds("Bearer sk-file"));
}

TEST_F(ApiKeyTest, WhatIsNoKeyIsNamedByItsSourceOnly) {
  for (const char* text : {"", "\n", "two words", "sk-a\r\nX-Other: b", "sk-\x01"}) {
    Write(text);
    EXPECT_THAT(Authorization(path_), StatusIs(absl::StatusCode::kInvalidArgument,
                                               AllOf(HasSubstr(path_), Not(HasSubstr("sk-")))));
  }
  setenv("BATON_API_KEY", "two words", 1);
  EXPECT_THAT(Authorization(""),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("BATON_API_KEY")));
  EXPECT_THAT(Authorization("/nonexistent"), StatusIs(absl::StatusCode::kNotFound));
}

}  // namespace
}  // namespace baton::cli
