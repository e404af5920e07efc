#include "kernels/cuda/hyper_connection.h"

#include "kernels/cuda/embedding.h"
#include "kernels/embedding.h"
#include "kernels/hyper_connection.h"
#include "tests/kernels/cuda/support.h"

namespace baton::kernels::cuda {
namespace {

class EmbedTest : public CudaTest {};

TEST_F(EmbedTest, CopiesRowsToAllStreamsAndZeroesPaddedRows) {
  constexpr int64_t kVocabulary = 50;
  for (const int64_t d : {256, 4096, 7168}) {
    const auto table = RandomValues<BFloat16>(kVocabulary * d, 1);
    const std::vector<int32_t> tokens = {0, 49, 7, 7, 31};
    std::vector<int32_t> padded = tokens;
    padded.push_back(-1);
    const DeviceArray<BFloat16> device_table(table);
    const DeviceArray<int32_t> device_tokens(padded);
    DeviceArray<BFloat16> y(6 * 4 * d);
    Embed({device_table.get(), kVocabulary, d}, device_tokens.get(), 4, {y.get(), 6, 4 * d},
          TestStream().get());
    std::vector<BFloat16> expected(6 * 4 * d);
    kernels::Embed(View(table, kVocabulary, d), tokens, 4, View(expected, 5, 4 * d));
    EXPECT_EQ(CountDifferent(y.Download(), expected), 0);
  }
}

// Weights of the size that training leaves: projections of order one.
struct HcCase {
  HcCase(int64_t rows, int64_t d, int mixes, uint32_t seed)
      : rows(rows),
        d(d),
        streams(RandomWithOutliers<BFloat16>(rows * 4 * d, seed)),
        fn(RandomValues<float>(mixes * 4 * d, seed + 1, 0.02f)),
        scale(RandomValues<float>(3, seed + 2)),
        base(RandomValues<float>(mixes, seed + 3)),
        device_streams(streams),
        device_scale(scale),
        device_base(base),
        packed_fn(HcFnBytes(mixes, 4 * d)),
        x(rows * d),
        post(rows * 4),
        comb(rows * 16),
        scratch(HcScratchBytes(rows)) {
    const DeviceArray<float> device_fn(fn);
    PackHcFn({device_fn.get(), mixes, 4 * d}, packed_fn.get(), TestStream().get());
    TestStream().Synchronize();
  }

  // Runs HcPre over `count` rows from `first` on.
  void Pre(int64_t first, int64_t count) {
    HcPre({.streams = {device_streams.get() + first * 4 * d, count, 4 * d},
           .fn = packed_fn.get(),
           .scale = device_scale.get(),
           .base = device_base.get(),
           .x = {x.get(), count, d},
           .post = post.get(),
           .comb = comb.get(),
           .scratch = scratch.get()},
          TestStream().get());
  }

  int64_t rows, d;
  std::vector<BFloat16> streams;
  std::vector<float> fn, scale, base;
  DeviceArray<BFloat16> device_streams;
  DeviceArray<float> device_scale, device_base;
  DeviceArray<std::byte> packed_fn;
  DeviceArray<BFloat16> x;
  DeviceArray<float> post, comb;
  DeviceArray<std::byte> scratch;
};

class HyperConnectionTest : public CudaTest {};

TEST_F(HyperConnectionTest, PreMatchesTheCpu) {
  for (const int64_t d : {256, 4096, 7168}) {
    for (const int64_t rows : {1, 17, 130}) {
      HcCase c(rows, d, kMixes, static_cast<uint32_t>(d + rows));
      c.Pre(0, rows);
      const PackedMatrix fn = PackedMatrix::FromRows(View(c.fn, kMixes, 4 * d));
      std::vector<BFloat16> x(rows * d);
      std::vector<float> post(rows * 4), comb(rows * 16);
      kernels::HcPre({.streams = View(c.streams, rows, 4 * d),
                      .fn = &fn,
                      .scale = c.scale,
                      .base = c.base,
                      .x = View(x, rows, d),
                      .post = View(post, rows, 4),
                      .comb = View(comb, rows, 16)},
                     TestPool());
      EXPECT_LT(RelativeError(c.post.Download(), post), 2e-5) << d << " x " << rows;
      EXPECT_LT(RelativeError(c.comb.Download(), comb), 2e-5) << d << " x " << rows;
      EXPECT_LT(RelativeError(c.x.Download(), x), 6e-4) << d << " x " << rows;
      EXPECT_LE(CountDifferent(c.x.Download(), x), rows * d / 100) << d << " x " << rows;
    }
  }
}

// Enough rows that a block sums several segments; the same rows alone, where it sums one.
TEST_F(HyperConnectionTest, PreOfARowDoesNotDependOnTheBatch) {
  constexpr int64_t kRows = 128 * 40 + 5;
  constexpr int64_t kWidth = 256;
  HcCase c(kRows, kWidth, kMixes, 9);
  c.Pre(0, kRows);
  const auto x = c.x.Download((kRows - 3) * kWidth, 3 * kWidth);
  const auto comb = c.comb.Download((kRows - 3) * 16, 3 * 16);
  c.Pre(kRows - 3, 3);
  EXPECT_EQ(CountDifferent(c.x.Download(0, 3 * kWidth), x), 0);
  EXPECT_EQ(CountDifferent(c.comb.Download(0, 3 * 16), comb), 0);
}

TEST_F(HyperConnectionTest, PostGivesTheCpusBits) {
  for (const int64_t d : {256, 4096, 7168}) {
    for (const int64_t rows : {0, 1, 33}) {
      auto streams = RandomWithOutliers<BFloat16>(rows * 4 * d, 31);
      const auto output = RandomWithOutliers<BFloat16>(rows * d, 32);
      const auto post = RandomValues<float>(rows * 4, 33);
      const auto comb = RandomValues<float>(rows * 16, 34);
      const DeviceArray<BFloat16> device_streams(streams), device_output(output);
      const DeviceArray<float> device_post(post), device_comb(comb);
      HcPost({.output = {device_output.get(), rows, d},
              .post = device_post.get(),
              .comb = device_comb.get(),
              .streams = {device_streams.get(), rows, 4 * d}},
             TestStream().get());
      kernels::HcPost({.output = View(output, rows, d),
                       .post = View(post, rows, 4),
                       .comb = View(comb, rows, 16),
                       .streams = View(streams, rows, 4 * d)},
                      TestPool());
      EXPECT_EQ(CountDifferent(device_streams.Download(), streams), 0) << d << " x " << rows;
    }
  }
}

TEST_F(HyperConnectionTest, HeadMatchesTheCpu) {
  for (const int64_t d : {256, 4096, 7168}) {
    constexpr int64_t kRows = 19;
    HcCase c(kRows, d, kStreams, static_cast<uint32_t>(d));
    HcHead({.streams = {c.device_streams.get(), kRows, 4 * d},
            .fn = c.packed_fn.get(),
            .scale = c.device_scale.get(),
            .base = c.device_base.get(),
            .x = {c.x.get(), kRows, d},
            .scratch = c.scratch.get()},
           TestStream().get());
    const PackedMatrix fn = PackedMatrix::FromRows(View(c.fn, kStreams, 4 * d));
    std::vector<BFloat16> x(kRows * d);
    kernels::HcHead({.streams = View(c.streams, kRows, 4 * d),
                     .fn = &fn,
                     .scale = c.scale[0],
                     .base = c.base,
                     .x = View(x, kRows, d)},
                    TestPool());
    EXPECT_LT(RelativeError(c.x.Download(), x), 6e-4) << d;
    EXPECT_LE(CountDifferent(c.x.Download(), x), kRows * d / 100) << d;
  }
}

}  // namespace
}  // namespace baton::kernels::cuda
