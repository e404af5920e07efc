#include "engine/cuda/expert_loader.h"

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/runtime/stream.h"

namespace baton::engine::cuda {
namespace {

constexpr std::array<const char*, 3> kMatrices = {"w1", "w2", "w3"};

}  // namespace

std::optional<ExpertLoader> ExpertLoader::Make(int64_t d, int64_t f) {
  constexpr int64_t kCodesPerByte = 2;
  constexpr int64_t kCodesPerScale = 32;
  const Layout layout{.codes = d * f / kCodesPerByte, .scales = d * f / kCodesPerScale};
  std::array<Wave, 2> waves;
  for (Wave& wave : waves) {
    auto host = kernels::PinnedBuffer::Allocate(kAtOnce * layout.bytes());
    auto device = kernels::DeviceBuffer::Allocate(kAtOnce * layout.bytes());
    if (!host || !device) return std::nullopt;
    wave.host = *std::move(host);
    wave.device = *std::move(device);
  }
  return ExpertLoader(layout, std::move(waves));
}

void ExpertLoader::Read(const TensorReader& layer, int first, int count, std::byte* target,
                        Problems& problems) const {
  std::vector<Problems> found(static_cast<size_t>(count));
  std::vector<std::jthread> threads;
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      const TensorReader reader =
          layer.Under(absl::StrCat("ffn.experts.", first + i, ".")).Reporting(found[i]);
      std::byte* const expert = target + i * layout_.bytes();
      for (int matrix = 0; matrix < std::ssize(kMatrices); ++matrix) {
        reader.ReadQuantized(
            kMatrices[matrix], {expert + layout_.Codes(matrix), static_cast<size_t>(layout_.codes)},
            {expert + layout_.Scales(matrix), static_cast<size_t>(layout_.scales)});
      }
    });
  }
  threads.clear();  // joins them
  for (const Problems& of_one : found) problems.Add(of_one);
}

void ExpertLoader::Load(const TensorReader& layer, int first, const kernels::cuda::ExpertBank& bank,
                        CUstream_st* stream, Problems& problems) {
  for (int begin = 0; begin < bank.experts; begin += kAtOnce) {
    Wave& wave = waves_[begin / kAtOnce % waves_.size()];
    const int count = std::min(kAtOnce, bank.experts - begin);
    wave.packed.Synchronize();
    Read(layer, first + begin, count, wave.host.data(), problems);
    kernels::CopyAsync(wave.device.data(), wave.host.data(), count * layout_.bytes(), stream);
    for (int i = 0; i < count; ++i) {
      const auto tensor = [&](int matrix) {
        const auto* const expert = wave.device.As<const uint8_t>() + i * layout_.bytes();
        return kernels::cuda::Fp4Tensor{expert + layout_.Codes(matrix),
                                        expert + layout_.Scales(matrix)};
      };
      kernels::cuda::PackExpert(tensor(0), tensor(1), tensor(2), begin + i, bank, stream);
    }
    wave.packed.Record(stream);
  }
}

}  // namespace baton::engine::cuda
