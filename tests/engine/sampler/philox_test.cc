#include "engine/sampler/philox.h"

#include <set>

#include "gtest/gtest.h"

namespace baton::engine {
namespace {

// Known-answer vectors of the Random123 distribution, philox4x32 with 10 rounds.
TEST(PhiloxTest, AgreesWithThePublishedVectors) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(PhiloxTest, UniformUsesBothHalvesOfSeedAndPosition) {
  const uint64_t high = uint64_t{1} << 32;
  const std::set<double> values = {UniformAt(0, 0), UniformAt(1, 0), UniformAt(high, 0),
                                   UniformAt(0, 1), UniformAt(0, high)};
  EXPECT_EQ(values.size(), 5u);
}

TEST(PhiloxTest, UniformStaysInTheHalfOpenUnitInterval) {
  for (uint64_t position = 0; position < 10000; ++position) {
    const double u = UniformAt(42, position);
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
  }
}

}  // namespace
}  // namespace baton::engine
