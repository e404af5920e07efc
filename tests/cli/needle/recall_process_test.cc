#include "cli/needle/recall_process.h"

#include <chrono>

#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace baton::cli {
namespace {

using ::baton::testing::StatusIs;

absl::StatusOr<std::unique_ptr<RecallProcess>> Bash(const std::string& script) {
  return RecallProcess::Start("/bin/bash", {"-c", script});
}

TEST(RecallProcessTest, AnswersLineForLineAndSaysWhenTheChildHasEnded) {
  BATON_ASSERT_OK_AND_ASSIGN(const auto process, Bash("read line; echo \"$line\"; read line"));
  BATON_ASSERT_OK_AND_ASSIGN(const nlohmann::json answer, process->Ask({{"a", 1}}));
  EXPECT_EQ(answer["a"], 1);
  EXPECT_THAT(process->Ask({{"a", 2}}), StatusIs(absl::StatusCode::kUnavailable));
}

// As children do whose parent was started so.
TEST(RecallProcessTest, AChildThatIgnoresSignalsEndsWithItsInput) {
  const auto began = std::chrono::steady_clock::now();
  {
    BATON_ASSERT_OK_AND_ASSIGN(const auto process,
                               Bash("trap '' TERM; echo '{}'; while read -t 20 line; do :; done"));
    EXPECT_THAT(process->Ask({}), ::baton::testing::IsOk()) << "it ignores them by now";
  }
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(15));
}

}  // namespace
}  // namespace baton::cli
