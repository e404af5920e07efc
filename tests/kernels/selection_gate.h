#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/index_select.h"
#include "tests/kernels/support.h"

// The gate of the indexer: how many of the entries that an index in FP32 selects each mode and
// format has to select too.

namespace baton::kernels {

inline constexpr int kGateRows = 4;
inline constexpr int kGateTopK = 512;

struct GatedFormat {
  const char* name;
  EntryFormat format;
  Numerics numerics;
  double least;  // share of FP32's selection
};
inline constexpr GatedFormat kGatedFormats[] = {
    {"reference bf16", EntryFormat::kBf16, Numerics::kReference, 0.999},
    {"reference fp8", EntryFormat::kFp8Index, Numerics::kReference, 0.999},
    {"reference fp4", EntryFormat::kFp4Index, Numerics::kReference, 0.999},
    {"exact bf16", EntryFormat::kBf16, Numerics::kExact, 0.99},
    {"exact fp8", EntryFormat::kFp8Index, Numerics::kExact, 0.95},
};

// What FP8 may round away leaves room for the mildest faults, such as a missing ReLU where most
// products are positive. All the other lines stand for every fault.
inline bool TellsFaults(const GatedFormat& gated) { return gated.least >= 0.99; }

// Of kGateRows rows of kGateTopK entries each.
inline double SharedSelection(std::span<const int32_t> expected, std::span<const int32_t> actual) {
  int64_t common = 0;
  for (int row = 0; row < kGateRows; ++row) {
    const auto of_row = expected.subspan(row * kGateTopK, kGateTopK);
    for (const int32_t entry : actual.subspan(row * kGateTopK, kGateTopK)) {
      common += std::binary_search(of_row.begin(), of_row.end(), entry) ? 1 : 0;
    }
  }
  return static_cast<double>(common) / (kGateRows * kGateTopK);
}

// Vectors as projections produce them: a shared mean, a few channels far larger than the rest.
inline std::vector<BFloat16> WithOutlierChannels(int64_t vectors, uint32_t seed) {
  const auto mean = RandomValues<float>(kIndexDim, seed);
  auto values = RandomValues<float>(vectors * kIndexDim, seed + 1);
  for (int64_t i = 0; i < vectors * kIndexDim; ++i) {
    const int64_t channel = i % kIndexDim;
    if (channel % 37 == 5) values[i] *= 12.0f;
    // Keys differ in length too, or a scale read from the neighbour would not show.
    values[i] *= 0.5f + static_cast<float>(i / kIndexDim * 2654435761u % 1024) / 512.0f;
    values[i] += 0.5f * mean[channel];
  }
  return {values.begin(), values.end()};
}

}  // namespace baton::kernels
