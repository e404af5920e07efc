#include "kernels/cuda/variants.h"

#include <gmock/gmock.h>

#include "tests/kernels/cuda/support.h"

namespace baton::kernels::cuda {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr ModelShape kFlash = {.heads = 64,
                               .index_heads = 64,
                               .index_topk = 512,
                               .hidden = 4096,
                               .expert_width = 2048,
                               .experts = 256};

TEST(VariantsTest, KernelsLackNothingForTheModelsTheyWereMadeFor) {
  EXPECT_EQ(WhatKernelsLack(kFlash), "");
  EXPECT_EQ(WhatKernelsLack({.heads = 128,
                             .index_heads = 64,
                             .index_topk = 1024,
                             .hidden = 7168,
                             .expert_width = 3072,
                             .experts = 384}),
            "");
}

TEST(VariantsTest, WhatIsLackingIsNamedWithItsLimit) {
  ModelShape shape = kFlash;
  shape.heads = 96;
  shape.experts = 1000;
  const std::string lacking = WhatKernelsLack(shape);
  EXPECT_THAT(lacking, HasSubstr("attention heads 96 (up to 64 or a multiple of it)"));
  EXPECT_THAT(lacking, HasSubstr("experts 1000 (up to 512)"));
  EXPECT_THAT(lacking, Not(HasSubstr("hidden size")));
}

TEST(VariantsTest, DeterminismLacksNothingButWhereThereAreNoWgmmaVariants) {
  EXPECT_EQ(WhatDeterminismLacks(90, /*has_sm90a=*/true), "");
  EXPECT_THAT(WhatDeterminismLacks(120, false), HasSubstr("capability 9.0: with 12.0 bits"));
  EXPECT_THAT(WhatDeterminismLacks(90, false), HasSubstr("name 90a in BATON_CUDA_ARCHITECTURES"));
}

class VariantsOnDeviceTest : public CudaTest {};

TEST_F(VariantsOnDeviceTest, ADeviceThatRunsTheTestsLacksNothing) {
  EXPECT_EQ(WhatDeviceLacks(), "");
  EXPECT_EQ(HasSm90a() && CurrentDevice().compute_capability != 90, false);
}

}  // namespace
}  // namespace baton::kernels::cuda
