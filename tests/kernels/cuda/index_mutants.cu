#include "kernels/cuda/index_logits_portable.cuh"
#include "kernels/cuda/index_query.cuh"
#include "kernels/cuda/variants.h"
#include "tests/kernels/cuda/index_mutants.h"

namespace baton::kernels::cuda {

namespace {

struct NotRotated {
  static constexpr bool kHadamard = false;
};

struct Identity {
  __device__ static float Of(float dot) { return dot; }
};
struct NoRelu {
  using Page = PackedPage;
  using Activation = Identity;
};

// Rounded down to what a 16-byte load can reach.
struct InterleavedPage {
  __device__ static int Values(int index, int, int value_bytes, int scale_bytes) {
    return index * (value_bytes + scale_bytes) / 16 * 16;
  }
  __device__ static int Scales(int index, int, int value_bytes, int scale_bytes) {
    return index * (value_bytes + scale_bytes) + value_bytes;
  }
};
struct ReadInterleaved {
  using Page = InterleavedPage;
  using Activation = Relu;
};

struct NeighboursScale {
  __device__ static int Values(int index, int entries, int value_bytes, int scale_bytes) {
    return PackedPage::Values(index, entries, value_bytes, scale_bytes);
  }
  __device__ static int Scales(int index, int entries, int value_bytes, int scale_bytes) {
    return PackedPage::Scales((index + 1) % entries, entries, value_bytes, scale_bytes);
  }
};
struct ScaleOffByOne {
  using Page = NeighboursScale;
  using Activation = Relu;
};

}  // namespace

std::vector<IndexMutant> ProductionIndex() {
  std::vector<IndexMutant> variants = {{"mma.sync", false, IndexQuery, IndexLogitsPortable}};
  if (HasSm90a()) variants.push_back({"wgmma", false, IndexQuery, IndexLogitsSm90a});
  return variants;
}

std::vector<IndexMutant> IndexMutants() {
  return {{"no ReLU", false, IndexQuery, LaunchIndexLogitsPortable<NoRelu>},
          {"query not rotated", false, LaunchIndexQuery<NotRotated>, IndexLogits},
          {"read as interleaved", true, IndexQuery, LaunchIndexLogitsPortable<ReadInterleaved>},
          {"neighbour's scale", true, IndexQuery, LaunchIndexLogitsPortable<ScaleOffByOne>}};
}

}  // namespace baton::kernels::cuda
