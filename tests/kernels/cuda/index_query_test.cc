#include "kernels/cuda/index_query.h"

#include "kernels/index_select.h"
#include "kernels/rope.h"
#include "tests/kernels/cuda/support.h"

namespace baton::kernels::cuda {
namespace {

class IndexQueryTest : public CudaTest {};

TEST_F(IndexQueryTest, SameBitsAsTheCpu) {
  for (const Numerics numerics : {Numerics::kReference, Numerics::kExact}) {
    for (const int heads : {1, 4, 64}) {
      for (const int rows : {1, 3, 37}) {
        auto q = RandomWithOutliers<BFloat16>(int64_t{rows} * heads * kIndexDim, 1);
        std::fill(q.begin(), q.begin() + kIndexDim, BFloat16(0.0f));
        auto w = RandomValues<BFloat16>(int64_t{rows} * heads, 2);
        std::vector<float> rope(rows * kRopeDim);
        const RopeTable table({.theta = 160000, .factor = 16});
        for (int row = 0; row < rows; ++row) table.Fill(977 * row, rope.data() + row * kRopeDim);
        DeviceArray<BFloat16> device_q(q);
        DeviceArray<BFloat16> device_w(w);
        DeviceArray<float> device_rope(rope);
        cuda::IndexQuery({.q = device_q.get(),
                          .w = device_w.get(),
                          .rows = rows,
                          .heads = heads,
                          .rope = device_rope.get(),
                          .numerics = numerics},
                         TestStream().get());
        kernels::IndexQuery({.q = View(q, rows, int64_t{heads} * kIndexDim),
                             .heads = heads,
                             .rope = View(std::as_const(rope), rows, kRopeDim),
                             .numerics = numerics},
                            TestPool());
        ScaleIndexWeights(View(w, rows, heads));
        EXPECT_EQ(CountDifferent(device_q.Download(), q), 0) << heads << " heads, rows " << rows;
        EXPECT_EQ(CountDifferent(device_w.Download(), w), 0) << heads << " heads, rows " << rows;
      }
    }
  }
}

}  // namespace
}  // namespace baton::kernels::cuda
