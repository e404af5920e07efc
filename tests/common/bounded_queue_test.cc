#include "common/bounded_queue.h"

#include <memory>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace baton {
namespace {

TEST(BoundedQueueTest, AFullQueueRefusesAndLeavesTheItem) {
  BoundedQueue<std::unique_ptr<int>> queue(1);
  EXPECT_TRUE(queue.TryPush(std::make_unique<int>(1)));
  auto item = std::make_unique<int>(2);
  EXPECT_FALSE(queue.TryPush(std::move(item)));
  ASSERT_NE(item, nullptr);
  EXPECT_EQ(*item, 2);
}

TEST(BoundedQueueTest, PopsInTheOrderOfPushes) {
  BoundedQueue<int> queue(3);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(queue.TryPush(int{i}));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(queue.Pop(), i);
}

TEST(BoundedQueueTest, AfterCloseWhatIsQueuedCanBePoppedAndNothingPushed) {
  BoundedQueue<int> queue(2);
  EXPECT_TRUE(queue.TryPush(1));
  queue.Close();
  EXPECT_FALSE(queue.TryPush(2));
  EXPECT_EQ(queue.Pop(), 1);
  EXPECT_EQ(queue.Pop(), std::nullopt);
}

TEST(BoundedQueueTest, CloseWakesAllWhoWait) {
  BoundedQueue<int> queue(1);
  std::vector<std::jthread> consumers;
  for (int i = 0; i < 4; ++i) {
    consumers.emplace_back([&] { EXPECT_EQ(queue.Pop(), std::nullopt); });
  }
  queue.Close();
  for (std::jthread& consumer : consumers) consumer.join();
}

TEST(BoundedQueueTest, ManyProducersAndConsumersLoseNothing) {
  constexpr int kItems = 2000;
  BoundedQueue<int> queue(8);
  std::atomic<int64_t> sum = 0;
  std::vector<std::jthread> consumers;
  for (int i = 0; i < 3; ++i) {
    consumers.emplace_back([&] {
      while (const std::optional<int> item = queue.Pop()) sum += *item;
    });
  }
  std::vector<std::jthread> producers;
  for (int i = 0; i < 2; ++i) {
    producers.emplace_back([&] {
      for (int item = 1; item <= kItems; ++item) {
        while (!queue.TryPush(int{item})) std::this_thread::yield();
      }
    });
  }
  for (std::jthread& producer : producers) producer.join();
  queue.Close();
  for (std::jthread& consumer : consumers) consumer.join();
  EXPECT_EQ(sum, int64_t{kItems} * (kItems + 1));
}

}  // namespace
}  // namespace baton
