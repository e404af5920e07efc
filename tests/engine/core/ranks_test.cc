#include <future>
#include <thread>

#include "engine/engine_loop.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/core/test_engine.h"
#include "tests/engine/parallel/free_address.h"

// Engines that share their experts, each in a thread of this process.

namespace baton::engine {
namespace {

using ::baton::testing::StatusIs;
using ::testing::HasSubstr;

// Runs one sequence to its end, then rests.
class OneSequence : public EngineClient {
 public:
  std::vector<StepItem> PlanStep() override {
    if (sequence == nullptr) return {};
    return {NextItem(*sequence, 48)};
  }
  void OnStep(std::vector<StepOutput> outputs) override {
    if (outputs.at(0).finish == Finish::kNo) return;
    std::vector<int32_t> tokens = sequence->tokens();
    sequence.reset();
    finished.set_value(std::move(tokens));
  }

  std::unique_ptr<Sequence> sequence;  // engine thread
  std::promise<std::vector<int32_t>> finished;
};

EngineOptions SmallOptions() {
  EngineOptions options = TestOptions();
  options.forward.threads = 1;
  return options;
}

std::vector<std::unique_ptr<Engine>> MakeRanks(int ranks) {
  const std::string address = FreeAddress();
  std::vector<std::unique_ptr<Engine>> engines(ranks);
  std::vector<std::thread> starting;
  for (int rank = 0; rank < ranks; ++rank) {
    starting.emplace_back([&, rank] {
      EngineOptions options = SmallOptions();
      options.parallel = {.size = ranks, .rank = rank, .address = address};
      engines[rank] = MakeEngine(options);
    });
  }
  for (std::thread& thread : starting) thread.join();
  return engines;
}

// Prompts of different lengths, so that ranks prefill, decode and rest at different times.
std::vector<int32_t> PromptOf(int rank) { return TestPrompt(60 + 70 * rank, rank + 1); }

class RanksTest : public ::testing::TestWithParam<int> {};

TEST_P(RanksTest, GenerateWhatEachWouldAlone) {
  const int ranks = GetParam();
  std::vector<std::vector<int32_t>> expected;
  {
    const std::unique_ptr<Engine> alone = MakeEngine(SmallOptions());
    for (int rank = 0; rank < ranks; ++rank) {
      const auto sequence = MakeSequence(*alone, PromptOf(rank), Greedy(9 - rank));
      RunToEnd(*alone, *sequence);
      expected.push_back(sequence->tokens());
    }
  }
  std::vector<std::unique_ptr<Engine>> engines = MakeRanks(ranks);
  std::vector<OneSequence> clients(ranks);
  {
    std::vector<std::unique_ptr<EngineLoop>> loops;
    for (int rank = 0; rank < ranks; ++rank) {
      loops.push_back(std::make_unique<EngineLoop>(*engines[rank], clients[rank]));
    }
    for (int rank = 0; rank < ranks; ++rank) {
      loops[rank]->Post([&, rank] {
        clients[rank].sequence = MakeSequence(*engines[rank], PromptOf(rank), Greedy(9 - rank));
      });
    }
    for (int rank = 0; rank < ranks; ++rank) {
      EXPECT_EQ(clients[rank].finished.get_future().get(), expected[rank]) << "rank " << rank;
    }
    std::vector<std::future<bool>> left;
    for (const auto& engine : engines) {
      left.push_back(std::async(std::launch::async,
                                [&] { return engine->LeaveGroup(std::chrono::seconds(10)); }));
    }
    for (std::future<bool>& one : left) EXPECT_TRUE(one.get());
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, RanksTest, ::testing::Values(2, 3));

TEST(RankOptionsTest, WhatCannotBeIsRefusedByName) {
  const auto refusal = [](const ParallelOptions& parallel) {
    EngineOptions options = SmallOptions();
    options.parallel = parallel;
    return Engine::Create(options).status();
  };
  const auto invalid = [](const char* text) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text));
  };
  EXPECT_THAT(refusal({.size = 9}), invalid("expert_parallel_size is 9, must be in [1, 8]"));
  EXPECT_THAT(refusal({.size = 2, .rank = 2, .address = "a:1"}),
              invalid("expert_parallel_rank is 2"));
  EXPECT_THAT(refusal({.size = 2}), invalid("expert_parallel_address is missing"));
  EXPECT_THAT(refusal({.size = 2, .address = "a:0"}), invalid("a port that all ranks know"));
}

}  // namespace
}  // namespace baton::engine
