#include "engine/engine_loop.h"

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "common/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/core/test_engine.h"

namespace baton::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

// A flag that another thread can wait for.
class Signal {
 public:
  void Set() {
    MutexLock lock(mutex_);
    set_ = true;
    changed_.NotifyAll();
  }
  void Wait() {
    MutexLock lock(mutex_);
    while (!set_) changed_.Wait(mutex_);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool set_ ABSL_GUARDED_BY(mutex_) = false;
};

// Runs one sequence at a time to its end.
class OneSequenceClient : public EngineClient {
 public:
  std::vector<StepItem> PlanStep() override {
    ++plans;
    if (sequence == nullptr) return {};
    return {NextItem(*sequence, 8)};
  }
  void OnStep(std::vector<StepOutput> outputs) override {
    step_threads.push_back(std::this_thread::get_id());
    if (on_step) on_step();
    if (outputs.at(0).finish == Finish::kNo) return;
    tokens = sequence->tokens();
    sequence.reset();
    finished.Set();
  }

  // Engine thread only.
  std::unique_ptr<Sequence> sequence;
  std::vector<int32_t> tokens;
  std::vector<std::thread::id> step_threads;
  std::function<void()> on_step;
  int plans = 0;

  Signal finished;
};

class EngineLoopTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { engine_ = MakeEngine(TestOptions()).release(); }
  static void TearDownTestSuite() {
    delete engine_;
    engine_ = nullptr;
  }
  static Engine* engine_;
};
Engine* EngineLoopTest::engine_ = nullptr;

TEST_F(EngineLoopTest, StepsUntilTheClientHasNothingMore) {
  OneSequenceClient client;
  EngineLoop loop(*engine_, client);
  loop.Post([&] { client.sequence = MakeSequence(*engine_, TestPrompt(20), Greedy(4)); });
  client.finished.Wait();
  std::thread::id engine_thread;
  EXPECT_TRUE(loop.Run([&] { engine_thread = std::this_thread::get_id(); }));
  EXPECT_NE(engine_thread, std::this_thread::get_id());
  EXPECT_THAT(client.step_threads, ::testing::Each(engine_thread));
  EXPECT_GE(client.step_threads.size(), 4u);  // three chunks, then decode
  EXPECT_THAT(client.tokens, SizeIs(24));
}

TEST_F(EngineLoopTest, TasksRunInTheOrderOfPosting) {
  OneSequenceClient client;
  EngineLoop loop(*engine_, client);
  std::vector<int> order;
  for (int i = 0; i < 5; ++i) loop.Post([&order, i] { order.push_back(i); });
  EXPECT_TRUE(loop.Run([&order] { order.push_back(5); }));
  EXPECT_THAT(order, ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST_F(EngineLoopTest, SleepsWhenThereIsNothingToDo) {
  OneSequenceClient client;
  EngineLoop loop(*engine_, client);
  int plans_before = 0;
  int plans_after = 0;
  loop.Run([&] { plans_before = client.plans; });
  loop.Run([&] { plans_after = client.plans; });
  // One plan for each batch of tasks and one at the start; a loop that spins has thousands.
  EXPECT_LE(plans_after - plans_before, 1);
}

TEST_F(EngineLoopTest, TasksMayPostMoreTasks) {
  OneSequenceClient client;
  EngineLoop loop(*engine_, client);
  Signal done;
  loop.Post([&] { loop.Post([&] { loop.Post([&] { done.Set(); }); }); });
  done.Wait();
}

TEST_F(EngineLoopTest, WhatWasPostedBeforeStopRunsAndNothingAfter) {
  OneSequenceClient client;
  std::atomic<int> ran = 0;
  auto dropped = std::make_shared<int>(0);
  const std::weak_ptr<int> watched = dropped;
  {
    EngineLoop loop(*engine_, client);
    Signal busy;
    Signal go_on;
    loop.Post([&] {
      busy.Set();
      go_on.Wait();
    });
    busy.Wait();
    loop.Post([&] { ++ran; });
    loop.Stop();
    loop.Post([&ran, keep = std::move(dropped)] { ran += *keep + 100; });
    EXPECT_TRUE(watched.expired());  // destroyed at once, on this thread
    EXPECT_FALSE(loop.Run([&] { ran += 100; }));
    go_on.Set();
  }
  EXPECT_EQ(ran, 1);
}

TEST_F(EngineLoopTest, StopFinishesTheStepThatRunsAndStartsNoOther) {
  OneSequenceClient client;
  {
    EngineLoop loop(*engine_, client);
    Signal stopped;
    client.on_step = [&] {
      loop.Stop();
      stopped.Set();
    };
    loop.Post([&] { client.sequence = MakeSequence(*engine_, TestPrompt(100), Greedy(4)); });
    stopped.Wait();
  }
  EXPECT_THAT(client.step_threads, SizeIs(1));
  EXPECT_EQ(client.sequence->computed(), 8);
  client.sequence.reset();
}

TEST_F(EngineLoopTest, ManyThreadsMayPostAtOnce) {
  OneSequenceClient client;
  EngineLoop loop(*engine_, client);
  int count = 0;  // engine thread only
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 100; ++i) loop.Post([&] { ++count; });
      loop.Run([&] { ++count; });
    });
  }
  for (std::jthread& thread : threads) thread.join();
  int seen = 0;
  loop.Run([&] { seen = count; });
  EXPECT_EQ(seen, 404);
}

TEST_F(EngineLoopTest, StopsWhenEmptyWhoeverWasStillOnTheWayIn) {
  OneSequenceClient client;
  EngineLoop loop(*engine_, client);
  Gate gate;
  Gate::Pass inside = gate.TryEnter();
  Gate::Pass on_the_way = gate.TryEnter();
  int rounds = 0;
  loop.StopWhenEmpty(gate, [&] {
    ++rounds;
    (rounds == 1 ? inside : on_the_way) = Gate::Pass();
  });
  EXPECT_EQ(rounds, 2);
  EXPECT_FALSE(gate.TryEnter());
  EXPECT_FALSE(loop.Run([] {})) << "it has stopped";
}

}  // namespace
}  // namespace baton::engine
