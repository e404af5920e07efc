#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "engine/model/problems.h"
#include "engine/model/tensor_reader.h"
#include "kernels/cuda/grouped_experts.h"
#include "kernels/runtime/buffer.h"
#include "kernels/runtime/event.h"

namespace baton::engine::cuda {

// Brings routed experts, nearly all bytes of a model, to the device. Some are read and checked at a
// time, each on a thread of its own, into page-locked memory, while the ones before are copied and
// packed.
class ExpertLoader {
 public:
  // For experts of these sizes. Null: no memory.
  static std::optional<ExpertLoader> Make(int64_t d, int64_t f);

  // Experts [first, first + bank.experts) of the layer that `layer` reads. Complaints about values
  // go to `problems`. Returns before the device has finished: the loader outlives that.
  void Load(const TensorReader& layer, int first, const kernels::cuda::ExpertBank& bank,
            CUstream_st* stream, Problems& problems);

 private:
  static constexpr int kAtOnce = 8;
  struct Wave {
    kernels::PinnedBuffer host;
    kernels::DeviceBuffer device;
    kernels::Event packed;
  };
  // Where the parts of an expert lie: codes and scales of w1, w2 and w3, each as large as the other
  // matrices'.
  struct Layout {
    int64_t codes = 0;
    int64_t scales = 0;
    int64_t Codes(int matrix) const { return matrix * (codes + scales); }
    int64_t Scales(int matrix) const { return Codes(matrix) + codes; }
    int64_t bytes() const { return Codes(3); }
  };

  ExpertLoader(const Layout& layout, std::array<Wave, 2> waves)
      : layout_(layout), waves_(std::move(waves)) {}

  void Read(const TensorReader& layer, int first, int count, std::byte* target,
            Problems& problems) const;

  Layout layout_;
  std::array<Wave, 2> waves_;
};

}  // namespace baton::engine::cuda
