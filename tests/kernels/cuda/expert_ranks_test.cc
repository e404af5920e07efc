#include "kernels/cuda/expert_ranks.h"

#include <memory>
#include <random>
#include <tuple>

#include "kernels/cuda/permute.h"
#include "tests/kernels/cuda/fp8_support.h"

namespace baton::kernels::cuda {
namespace {

class ExpertRanksTest : public CudaTest {};

TEST_F(ExpertRanksTest, DispatchedRowsArriveUnchanged) {
  for (const auto& [rows, d, k] :
       {std::tuple{1, 128, 1}, {5, 256, 2}, {37, 4096, 6}, {3, 7168, 8}}) {
    const TestFp8Rows x(RandomWithOutliers<BFloat16>(int64_t{rows} * d, 1), rows, d);
    std::vector<int32_t> ids(rows * k);
    std::mt19937 random(2);
    for (int32_t& id : ids) id = static_cast<int32_t>(random() % 385) - 1;
    const std::vector<float> weights = RandomValues<float>(rows * k, 3);
    const DeviceArray<int32_t> sent_ids(ids);
    const DeviceArray<float> sent_weights(weights);
    const DeviceArray<std::byte> dispatched(rows * DispatchedRowBytes(d, k));
    PackRows({.x = x.view(),
              .experts = {sent_ids.get(), rows, k},
              .weights = sent_weights.get(),
              .out = dispatched.get()},
             TestStream().get());
    const DeviceArray<uint8_t> codes(int64_t{rows} * d);
    const DeviceArray<float> scales(int64_t{rows} * d / 128);
    const DeviceArray<int32_t> received_ids(rows * k);
    const DeviceArray<float> received_weights(rows * k);
    UnpackRows({.rows = dispatched.get(),
                .x = {codes.get(), scales.get(), rows, d, d, rows},
                .experts = {received_ids.get(), rows, k},
                .weights = received_weights.get()},
               TestStream().get());
    EXPECT_EQ(codes.Download(), x.codes.Download(0, int64_t{rows} * d)) << rows << " rows of " << d;
    for (int64_t group = 0; group < d / 128; ++group) {
      EXPECT_EQ(scales.Download(group * rows, rows),
                x.scales.Download(group * TestFp8Rows::Padded(rows), rows));
    }
    EXPECT_EQ(received_ids.Download(), ids);
    EXPECT_EQ(received_weights.Download(), weights);
  }
}

// Eight experts over three ranks, of which a row has up to three: sums in the order of experts
// within a rank, then of ranks, then the shared expert.
TEST_F(ExpertRanksTest, SumsOfRanksAddUpInOneOrder) {
  constexpr int64_t kRows = 33, kD = 1160, kK = 3;
  const std::vector<int> begin = {0, 2, 5, 8};
  std::mt19937 random(4);
  std::vector<int32_t> ids;
  for (int64_t row = 0; row < kRows; ++row) {
    const auto first = static_cast<int32_t>(random() % 6);
    for (int32_t i = 0; i < kK; ++i) ids.push_back(row == 7 ? -1 : first + i);  // 7 is padded
  }
  const auto y = RandomValues<BFloat16>(kRows * kK * kD, 5);  // of every entry
  const auto shared = RandomValues<BFloat16>(kRows * kD, 6);

  std::vector<float> expected(kRows * kD, 0.0f);
  const DeviceArray<int32_t> device_ids(ids);
  const DeviceArray<float> weights(kRows * kK);
  std::vector<std::unique_ptr<DeviceArray<float>>> sums;
  AddRanksParams add;
  add.ranks = 3;
  for (int rank = 0; rank < 3; ++rank) {
    const DeviceArray<int32_t> slot_begin(begin[rank + 1] - begin[rank] + 1);
    const DeviceArray<int32_t> row(kRows * kK), slot(kRows * kK);
    const DeviceArray<float> weight(kRows * kK);
    AssignSlots({.experts = {device_ids.get(), kRows, kK},
                 .weights = weights.get(),
                 .first_expert = begin[rank],
                 .expert_count = begin[rank + 1] - begin[rank],
                 .begin = slot_begin.get(),
                 .row = row.get(),
                 .weight = weight.get(),
                 .slot = slot.get()},
                TestStream().get());
    const std::vector<int32_t> slots = slot.Download();
    std::vector<BFloat16> placed(kRows * kK * kD);
    for (int64_t r = 0; r < kRows; ++r) {
      std::vector<float> sum(kD, 0.0f);
      for (int64_t entry = r * kK; entry < (r + 1) * kK; ++entry) {
        const bool here = ids[entry] >= begin[rank] && ids[entry] < begin[rank + 1];
        ASSERT_EQ(slots[entry] >= 0, here) << "row " << r << ", rank " << rank;
        if (!here) continue;
        for (int64_t i = 0; i < kD; ++i) {
          placed[slots[entry] * kD + i] = y[entry * kD + i];
          sum[i] += static_cast<float>(y[entry * kD + i]);
        }
      }
      for (int64_t i = 0; i < kD; ++i) expected[r * kD + i] += sum[i];
    }
    const DeviceArray<BFloat16> device_y(placed);
    sums.push_back(std::make_unique<DeviceArray<float>>(kRows * kD));
    SumSlots({.y = {device_y.get(), kRows * kK, kD},
              .slot = {slot.get(), kRows, kK},
              .sum = {sums.back()->get(), kRows, kD}},
             TestStream().get());
    TestStream().Synchronize();
    add.sums[rank] = sums.back()->get();
  }
  const DeviceArray<BFloat16> out(shared);
  add.shared = {out.get(), kRows, kD};
  add.out = {out.get(), kRows, kD};
  AddRanks(add, TestStream().get());
  std::vector<BFloat16> rounded;
  for (int64_t i = 0; i < kRows * kD; ++i) {
    rounded.emplace_back(expected[i] + static_cast<float>(shared[i]));
  }
  EXPECT_EQ(CountDifferent(out.Download(), rounded), 0);
}

}  // namespace
}  // namespace baton::kernels::cuda
