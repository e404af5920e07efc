#include "router/policy/prefix_memory.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton::router {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int64_t kBlock = PrefixMemory::kBlockTokens;

std::vector<int32_t> Prompt(int64_t tokens, int32_t first = 0) {
  std::vector<int32_t> prompt(static_cast<size_t>(tokens));
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = first + static_cast<int32_t>(i);
  return prompt;
}

WorkerId Worker(const std::string& address) { return {.address = address, .incarnation = 1}; }

// "a:256 b:128": who is known, and for how many tokens.
std::vector<std::string> Known(const PrefixMemory& memory, const std::vector<int32_t>& prompt) {
  std::vector<std::string> known;
  for (const PrefixMemory::Known& found : memory.Find(prompt)) {
    known.push_back(found.worker.address + ":" + std::to_string(found.tokens));
  }
  return known;
}

TEST(PrefixMemoryTest, KnowsWhoSawTheLongestBeginning) {
  PrefixMemory memory(100);
  memory.Remember(Prompt(2 * kBlock + 5), std::vector<WorkerId>{Worker("a")});
  memory.Remember(Prompt(kBlock), std::vector<WorkerId>{Worker("b")});
  EXPECT_THAT(Known(memory, Prompt(9 * kBlock)), ElementsAre("a:256", "b:128"));
  EXPECT_THAT(Known(memory, Prompt(kBlock - 1)), IsEmpty());
  EXPECT_THAT(Known(memory, Prompt(kBlock, 7)), IsEmpty());
}

TEST(PrefixMemoryTest, ABlockStandsForEverythingBeforeIt) {
  PrefixMemory memory(100);
  std::vector<int32_t> prompt = Prompt(2 * kBlock);
  memory.Remember(prompt, std::vector<WorkerId>{Worker("a")});
  prompt[3] = -1;
  EXPECT_THAT(Known(memory, prompt), IsEmpty());
}

TEST(PrefixMemoryTest, ARestartedWorkerIsAnother) {
  PrefixMemory memory(100);
  memory.Remember(Prompt(kBlock), std::vector<WorkerId>{Worker("a")});
  const WorkerId restarted = {.address = "a", .incarnation = 2};
  memory.Remember(Prompt(2 * kBlock), std::vector<WorkerId>{restarted});
  EXPECT_EQ(memory.Find(Prompt(2 * kBlock)).back().worker, restarted);
  EXPECT_EQ(memory.Find(Prompt(2 * kBlock)).back().tokens, 2 * kBlock);
}

TEST(PrefixMemoryTest, ForgetsWhatWasUsedLongestAgoFromItsEnd) {
  PrefixMemory memory(3);
  memory.Remember(Prompt(2 * kBlock), std::vector<WorkerId>{Worker("a")});
  memory.Remember(Prompt(2 * kBlock, 9), std::vector<WorkerId>{Worker("b")});
  EXPECT_THAT(Known(memory, Prompt(2 * kBlock)), ElementsAre("a:128"));
  EXPECT_THAT(Known(memory, Prompt(2 * kBlock, 9)), ElementsAre("b:256"));
}

}  // namespace
}  // namespace baton::router
