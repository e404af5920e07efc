#include "kernels/cpu/isa/isa.h"

#include <cmath>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/numeric.h"
#include "tests/kernels/support.h"

namespace baton::kernels {
namespace {

// Everything an instruction set computes, as bits, from fixed inputs.
class IsaTest : public ::testing::Test {
 protected:
  template <typename Compute>
  void ExpectSameBits(Compute compute) {
    const auto expected = compute(*RunnableIsas().front());
    for (const IsaKernels* isa : RunnableIsas()) {
      EXPECT_EQ(compute(*isa), expected) << isa->name;
    }
  }

  const std::vector<BFloat16> x_ = RandomValues<BFloat16>(4096, 1);
  const std::vector<float> w_ = RandomValues<float>(4096, 2);
};

TEST_F(IsaTest, TheBestSetIsRunnable) {
  EXPECT_EQ(&Isa(), RunnableIsas().back());
  EXPECT_STREQ(RunnableIsas().front()->name, "portable");
}

TEST_F(IsaTest, Gemm) {
  const auto panels = RandomValues<BFloat16>(16 * 11 * 42, 3);
  for (const int rows : {1, 3, 5, 12, 29}) {
    ExpectSameBits([&](const IsaKernels& isa) {
      std::vector<float> y(rows * 170, -1.0f);
      isa.gemm({.x = w_.data(),
                .rows = rows,
                .k = 40,
                .bf16_panels = panels.data(),
                .end_panel = 11,
                .columns = 170,
                .y_f32 = y.data(),
                .y_stride = 170});
      return y;
    });
  }
}

TEST_F(IsaTest, RowOps) {
  ExpectSameBits([&](const IsaKernels& isa) {
    std::vector<BFloat16> y(4096);
    isa.fake_quant_fp8(x_.data(), y.data(), 1024, 64);
    isa.fake_quant_fp4(x_.data() + 1024, y.data() + 1024, 1024);
    isa.scale_row(x_.data() + 2048, w_.data(), 0.37f, 512, y.data() + 2048);
    std::copy_n(x_.data(), 128, y.data() + 3000);
    isa.hadamard128(y.data() + 3000);
    isa.swiglu(x_.data(), x_.data() + 512, 0.4f, 1.5f, 512, y.data() + 3200);
    isa.sum_rows(x_.data(), 5, 64, y.data() + 3800);
    y.push_back(BFloat16(isa.mean_square(x_.data(), 528)));
    return y;
  });
}

TEST_F(IsaTest, DecodesEveryE4m3Code) {
  std::vector<uint8_t> codes(256);
  std::iota(codes.begin(), codes.end(), 0);
  for (const IsaKernels* isa : RunnableIsas()) {
    std::vector<BFloat16> y(256);
    isa->decode_e4m3(codes.data(), 256, 0.25f, y.data());
    for (int code = 0; code < 256; ++code) {
      const float expected = DecodeE4m3(static_cast<uint8_t>(code)) * 0.25f;
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(static_cast<float>(y[code])));
      } else {
        EXPECT_EQ(y[code], BFloat16(expected)) << code;
      }
    }
  }
}

TEST_F(IsaTest, HyperConnections) {
  ExpectSameBits([&](const IsaKernels& isa) {
    std::vector<float> out(24 * 16);
    isa.hc_mix({.m = w_.data(),
                .scale = w_.data() + 500,
                .base = w_.data() + 600,
                .iterations = 20,
                .eps = 1e-6f,
                .pre = out.data(),
                .post = out.data() + 64,
                .comb = out.data() + 128});
    std::vector<BFloat16> streams(x_.begin(), x_.begin() + 4 * 96);
    isa.hc_write(x_.data() + 1000, w_.data(), w_.data() + 4, 96, streams.data());
    std::vector<BFloat16> read(96);
    isa.hc_read(streams.data(), w_.data(), 96, read.data());
    for (const BFloat16 value : read) out.push_back(static_cast<float>(value));
    return out;
  });
}

TEST_F(IsaTest, Attention) {
  std::vector<const BFloat16*> entries;
  for (int i = 0; i < 37 + kAttentionSpareEntries; ++i) entries.push_back(x_.data() + i * 64);
  for (const int heads : {1, 4, 5}) {
    for (const int64_t count : {1, 16, 37}) {
      ExpectSameBits([&](const IsaKernels& isa) {
        std::vector<BFloat16> out(heads * 64);
        std::vector<float> scratch(AttentionScratchFloats(heads, 64, count));
        isa.attention_row({.q = x_.data() + 77,
                           .heads = heads,
                           .head_dim = 64,
                           .entries = entries.data(),
                           .count = count,
                           .sinks = w_.data(),
                           .scale = 0.125f,
                           .scratch = scratch.data(),
                           .out = out.data()});
        return out;
      });
    }
  }
}

TEST_F(IsaTest, IndexScoresAndPooling) {
  const auto keys = RandomValues<float>(kIndexBlockEntries * 128, 5);
  ExpectSameBits([&](const IsaKernels& isa) {
    std::vector<float> scores(2 * kIndexBlockEntries);
    isa.index_block({.q = w_.data(),
                     .w = w_.data() + 2500,
                     .rows = 2,
                     .heads = 9,
                     .keys = keys.data(),
                     .scores = scores.data(),
                     .stride = kIndexBlockEntries});
    std::vector<const BFloat16*> rows;
    for (int row = 0; row < 16; ++row) rows.push_back(x_.data() + row * 77);
    std::vector<float> panel(16 * 34);
    isa.interleave(rows.data(), 34, panel.data());
    EXPECT_EQ(panel[33 * 16 + 5], static_cast<float>(x_[5 * 77 + 33])) << isa.name;
    scores.insert(scores.end(), panel.begin(), panel.end());
    const float* c[3] = {w_.data(), w_.data() + 100, w_.data() + 200};
    const float* g[3] = {w_.data() + 300, w_.data() + 400, w_.data() + 500};
    std::vector<BFloat16> pooled(48);
    isa.pool({.c = c, .g = g, .count = 3, .channels = 48, .out = pooled.data()});
    for (const BFloat16 value : pooled) scores.push_back(static_cast<float>(value));
    return scores;
  });
}

}  // namespace
}  // namespace baton::kernels
