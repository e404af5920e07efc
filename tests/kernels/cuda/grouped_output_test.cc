#include "kernels/cuda/grouped_output.h"

#include <tuple>

#include "kernels/cuda/variants.h"
#include "kernels/grouped_output.h"
#include "tests/kernels/cuda/fp8_support.h"

namespace baton::kernels::cuda {
namespace {

// z of the first rows of o, whose rows must reach to the padding.
std::vector<BFloat16> RunOn(const GroupedOutput& op, const DeviceArray<BFloat16>& o, int64_t rows,
                            int64_t width, int64_t outputs) {
  DeviceArray<BFloat16> z(LtMatmul::RoundUpRows(rows) * outputs);
  DeviceArray<std::byte> scratch(op.ScratchBytes());
  DeviceArray<std::byte> workspace(LtMatmul::kWorkspaceBytes);
  op.Run({o.get(), rows, width}, {z.get(), rows, outputs}, scratch.get(), workspace.get(),
         TestStream().get());
  return z.Download(0, rows * outputs);
}

class GroupedOutputTest : public CudaTest,
                          public testing::WithParamInterface<std::tuple<int, int, int, int>> {};

TEST_P(GroupedOutputTest, MatchesTheReference) {
  const auto [rows, groups, rank, width] = GetParam();
  const TestFp8Weight w(groups * rank, width, 1);
  std::vector<PackedMatrix> packed;
  for (int g = 0; g < groups; ++g) {
    packed.push_back(PackedMatrix::FromRows(View(w.values, w.n, width).Rows(g * rank, rank)));
  }
  auto o = RandomWithOutliers<BFloat16>(int64_t{rows} * groups * width, 2);
  std::vector<BFloat16> expected(int64_t{rows} * groups * rank);
  kernels::GroupedOutput(View(std::as_const(o), rows, groups * width), packed,
                         View(expected, rows, groups * rank), TestPool());

  const auto op = GroupedOutput::FromFp8(View(w.codes, w.n, width),
                                         View(w.scales, w.n / 128, width / 128), groups, 64);
  ASSERT_TRUE(op);
  o.resize(LtMatmul::RoundUpRows(rows) * groups * width, BFloat16(NAN));
  EXPECT_LE(RelativeError(RunOn(*op, DeviceArray<BFloat16>(o), rows, groups * width, groups * rank),
                          expected),
            1e-3);
}

TEST_F(CudaTest, GroupedOutputRowsDoNotDependOnTheBatch) {
  if (!HasSm90a()) GTEST_SKIP() << "sums of the portable variant have another order";
  constexpr int kGroups = 4;
  constexpr int64_t kRows = 300, kRank = 256, kWidth = 2048, kOutputs = kGroups * kRank;
  const TestFp8Weight w(kOutputs, kWidth, 3);
  const auto op = GroupedOutput::FromFp8(
      View(w.codes, kOutputs, kWidth), View(w.scales, kOutputs / 128, kWidth / 128), kGroups, 512);
  ASSERT_TRUE(op);
  const DeviceArray<BFloat16> o(
      RandomWithOutliers<BFloat16>(LtMatmul::RoundUpRows(kRows) * kGroups * kWidth, 4));
  const auto all = RunOn(*op, o, kRows, kGroups * kWidth, kOutputs);
  for (const int64_t rows : {1, 2, 7, 9, 32, 33, 64, 65, 200}) {
    EXPECT_EQ(CountDifferent(RunOn(*op, o, rows, kGroups * kWidth, kOutputs),
                             {all.begin(), all.begin() + rows * kOutputs}),
              0)
        << rows;
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, GroupedOutputTest,
                         testing::Values(std::tuple{0, 2, 128, 1024}, std::tuple{1, 2, 128, 1024},
                                         std::tuple{7, 8, 1024, 4096}, std::tuple{16, 3, 256, 512},
                                         std::tuple{17, 2, 128, 1024}, std::tuple{40, 4, 256, 512},
                                         std::tuple{40, 8, 256, 512}, std::tuple{33, 6, 128, 512}));

}  // namespace
}  // namespace baton::kernels::cuda
