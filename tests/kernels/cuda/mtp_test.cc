#include "kernels/cuda/mtp.h"

#include "kernels/mtp.h"
#include "tests/kernels/cuda/support.h"

namespace baton::kernels::cuda {
namespace {

class MtpTest : public CudaTest {};

TEST_F(MtpTest, AddsTheEmbeddingToEveryStream) {
  for (const int64_t rows : {0, 1, 37}) {
    const int64_t d = 264;
    const auto e = RandomWithOutliers<BFloat16>(rows * d, 1);
    auto h = RandomWithOutliers<BFloat16>(rows * 4 * d, 2);
    const DeviceArray<BFloat16> device_e(e);
    DeviceArray<BFloat16> device_h(h);
    AddEmbeddingToStreams({device_e.get(), rows, d}, {device_h.get(), rows, 4 * d},
                          TestStream().get());
    kernels::AddEmbeddingToStreams(View(e, rows, d), View(h, rows, 4 * d));
    EXPECT_EQ(CountDifferent(device_h.Download(), h), 0) << rows;
  }
}

TEST_F(MtpTest, AcceptsDraftsUpToTheFirstWrongOne) {
  // One row; two drafts right; the first wrong although the second matches; no rows; the last
  // wrong.
  const TestBatch batch({{.start = 9, .rows = 1},
                         {.start = 0, .rows = 3},
                         {.start = 5, .rows = 3},
                         {.start = 7, .rows = 0},
                         {.start = 3, .rows = 2}},
                        2);
  const std::vector<int32_t> tokens = {10, 20, 21, 22, 30, 31, 32, 40, 41, 0, 0};
  const std::vector<int32_t> sampled = {11, 21, 22, 23, 99, 32, 33, 41, 77, 0, 0};
  const DeviceArray<int32_t> device_tokens(tokens), device_sampled(sampled);
  DeviceArray<int32_t> accepted(5), last(5);
  AcceptDrafts({.batch = batch.view(),
                .tokens = device_tokens.get(),
                .sampled = device_sampled.get(),
                .accepted = accepted.get(),
                .last = last.get()},
               TestStream().get());
  EXPECT_EQ(accepted.Download(), (std::vector<int32_t>{0, 2, 0, 0, 1}));
  EXPECT_EQ(last.Download(), (std::vector<int32_t>{11, 23, 99, -1, 77}));
}

}  // namespace
}  // namespace baton::kernels::cuda
