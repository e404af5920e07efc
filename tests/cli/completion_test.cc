#include "cli/completion.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton::cli {
namespace {

using ::testing::HasSubstr;

const std::vector<CompletionCommand> kCommands = {
    {.name = "up",
     .help = "Starts it: [all]",
     .flags = {{.name = "--model-dir", .help = "the model's folder"},
               {.name = "--json", .help = "as JSON", .takes_value = false}}},
    {.name = "chat", .help = "Talks", .flags = {}},
};

TEST(CompletionTest, EveryShellKnowsCommandsAndFlags) {
  EXPECT_THAT(CompletionScript("bash", kCommands), HasSubstr("'up chat --help --version'"));
  EXPECT_THAT(CompletionScript("bash", kCommands), HasSubstr("up) words='--model-dir= --json' ;;"));
  EXPECT_THAT(CompletionScript("zsh", kCommands), HasSubstr("'up:Starts it\\: \\[all\\]'"));
  EXPECT_THAT(CompletionScript("zsh", kCommands),
              HasSubstr("'--model-dir=[the model'\\''s folder]:value:_files'"));
  EXPECT_THAT(CompletionScript("zsh", kCommands), HasSubstr("'--json[as JSON]'"));
  EXPECT_THAT(CompletionScript("fish", kCommands),
              HasSubstr("from up' -l model-dir -r -d 'the model\\'s folder'"));
}

}  // namespace
}  // namespace baton::cli
