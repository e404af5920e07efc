#include "engine/cuda/arena.h"

#include <algorithm>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace baton::engine::cuda {
namespace {

using Part = ArenaPlan::Part;

ArenaPlan PlanOf(const std::vector<std::vector<Part>>& buffers) {
  ArenaPlan plan;
  for (const std::vector<Part>& parts : buffers) plan.Add(parts);
  plan.Place();
  return plan;
}

TEST(ArenaTest, BuffersThatAreNeverInUseTogetherShareAPlace) {
  const ArenaPlan plan = PlanOf({{{1024, {0, 1}}}, {{512, {2, 2}}}, {{256, {3, 9}}}});
  EXPECT_EQ(plan.bytes(), 1024);
  for (const size_t buffer : {0, 1, 2}) EXPECT_EQ(plan.offset(buffer), 0) << buffer;
}

TEST(ArenaTest, ThoseThatMeetInOneStageLieApart) {
  const ArenaPlan plan = PlanOf({{{512, {0, 2}}}, {{1024, {2, 4}}}, {{256, {3, 3}}}});
  EXPECT_EQ(plan.offset(1), 0);
  EXPECT_EQ(plan.offset(0), 1024);
  EXPECT_EQ(plan.offset(2), 1024);  // only the second is still there
  EXPECT_EQ(plan.bytes(), 1536);
}

TEST(ArenaTest, SizesAreRoundedUpToTheAlignment) {
  const ArenaPlan plan = PlanOf({{{1, {0, 0}}}, {{257, {0, 0}}}, {{0, {0, 0}}}, {{256, {0, 0}}}});
  EXPECT_EQ(plan.bytes(), 256 + 512 + 256);
  for (const size_t buffer : {0, 1, 2, 3}) {
    EXPECT_EQ(plan.offset(buffer) % ArenaPlan::kAlignment, 0) << buffer;
  }
}

TEST(ArenaTest, NothingTakesNothing) {
  EXPECT_EQ(PlanOf({}).bytes(), 0);
  EXPECT_EQ(PlanOf({{{0, {0, 5}}}}).bytes(), 0);
}

// The first part is needed before the second, whose place something else may have until then.
TEST(ArenaTest, PartsOfABufferHaveLifetimesOfTheirOwn) {
  for (const int64_t other : {768, 2048}) {
    const ArenaPlan plan = PlanOf({{{256, {0, 2}}, {1024, {2, 2}}}, {{other, {1, 1}}}});
    EXPECT_EQ(plan.offset(0), 0);
    EXPECT_EQ(plan.offset(1), 256);
    EXPECT_EQ(plan.bytes(), 256 + std::max<int64_t>(1024, other));
  }
}

TEST(ArenaTest, BytesWhoseLifetimesMeetNeverCoincide) {
  std::mt19937 random(7);
  const auto below = [&](int limit) { return static_cast<int>(random() % limit); };
  for (int round = 0; round < 200; ++round) {
    std::vector<std::vector<Part>> buffers(static_cast<size_t>(1 + below(30)));
    for (std::vector<Part>& parts : buffers) {
      const auto lifetime = [&] {
        const int first = below(10);
        return Lifetime{first, first + below(4)};
      };
      while (below(3) == 0) parts.push_back({256 * below(20), lifetime()});
      parts.push_back({below(5000), lifetime()});
    }
    const ArenaPlan plan = PlanOf(buffers);
    struct Piece {
      int64_t begin, end;
      Lifetime in_use;
      size_t buffer;
    };
    std::vector<Piece> pieces;
    for (size_t i = 0; i < buffers.size(); ++i) {
      int64_t begin = plan.offset(i);
      ASSERT_GE(begin, 0);
      for (const Part& part : buffers[i]) {
        if (part.bytes > 0) pieces.push_back({begin, begin + part.bytes, part.in_use, i});
        begin += part.bytes;
      }
      ASSERT_LE(begin, plan.bytes());
    }
    for (const Piece& a : pieces) {
      for (const Piece& b : pieces) {
        if (a.buffer == b.buffer || !a.in_use.Meets(b.in_use)) continue;
        ASSERT_FALSE(a.begin < b.end && b.begin < a.end)
            << "buffers " << a.buffer << " and " << b.buffer << " of round " << round;
      }
    }
  }
}

TEST(ArenaTest, DealsOutWhatThePlanSays) {
  ArenaPlan plan;
  const auto take = [](Carver carver) {
    const kernels::MatrixView<float> first = carver.Matrix<float>(3, 64, {0, 0});
    const kernels::cuda::MutableFp8Rows second = carver.Fp8(16, 256, {1, 1});
    return std::pair(first, second);
  };
  take(Carver(plan));
  plan.Place();
  std::vector<std::byte> memory(static_cast<size_t>(plan.bytes()));
  const auto [first, second] = take(Carver(plan, memory.data()));
  EXPECT_EQ(plan.bytes(), 16 * 256 + 256);
  EXPECT_EQ(reinterpret_cast<std::byte*>(first.data), memory.data());
  EXPECT_EQ(first.cols, 64);
  EXPECT_EQ(reinterpret_cast<std::byte*>(second.codes), memory.data());
  EXPECT_EQ(reinterpret_cast<std::byte*>(second.scales), memory.data() + 16 * 256);
  EXPECT_EQ(second.scale_stride, 16);
}

}  // namespace
}  // namespace baton::engine::cuda
