#include "kernels/cuda/grouped_output.h"

#include <tuple>

#include "kernels/grouped_output.h"
#include "tests/kernels/cuda/fp8_support.h"

namespace baton::kernels::cuda {
namespace {

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
  const int64_t padded = LtMatmul::RoundUpRows(rows);
  o.resize(padded * groups * width, BFloat16(NAN));
  const DeviceArray<BFloat16> device_o(o);
  DeviceArray<BFloat16> z(padded * groups * rank);
  DeviceArray<std::byte> scratch(op->ScratchBytes());
  DeviceArray<std::byte> workspace(LtMatmul::kWorkspaceBytes);
  op->Run({device_o.get(), rows, groups * width}, {z.get(), rows, groups * rank}, scratch.get(),
          workspace.get(), TestStream().get());
  EXPECT_LE(RelativeError(z.Download(0, int64_t{rows} * groups * rank), expected), 1e-3);
}

INSTANTIATE_TEST_SUITE_P(Shapes, GroupedOutputTest,
                         testing::Values(std::tuple{0, 2, 128, 1024}, std::tuple{1, 2, 128, 1024},
                                         std::tuple{7, 8, 1024, 4096}, std::tuple{16, 3, 256, 512},
                                         std::tuple{17, 2, 128, 1024},
                                         std::tuple{40, 4, 256, 512}));

}  // namespace
}  // namespace baton::kernels::cuda
