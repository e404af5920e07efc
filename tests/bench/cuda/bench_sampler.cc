#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "kernels/cuda/logprobs.h"
#include "kernels/cuda/sampler.h"
#include "tests/bench/cuda/harness.h"

namespace baton::kernels::cuda {
namespace {

constexpr int64_t kVocabulary = 129280, kRows = 64;

DeviceBuffer NormalLogits() {
  std::mt19937 engine(1);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> values(kRows * kVocabulary);
  for (float& value : values) value = normal(engine);
  return OnDevice(values);
}

const BenchGroup kSampler("sampler", [](Bench& bench) {
  const DeviceBuffer logits = NormalLogits(), tokens = Zeros(kRows * 4);
  struct Variant {
    const char* name;
    SampleRow row;
  };
  for (const auto& [name, row] :
       {Variant{"greedy", {.temperature = 0}}, Variant{"temperature", {.temperature = 0.7f}},
        Variant{"top_k 50", {.temperature = 0.7f, .top_k = 50}},
        Variant{"top_p 0.9", {.temperature = 0.7f, .top_p = 0.9f}}}) {
    const DeviceBuffer rows = OnDevice(std::vector<SampleRow>(kRows, row));
    bench.Run({.name = std::string("sample 64 rows, ") + name,
               .bytes = kRows * kVocabulary * 4.0,
               .launch =
                   [&](int, CUstream_st* stream) {
                     Sample({.logits = {logits.As<float>(), kRows, kVocabulary},
                             .rows = rows.As<SampleRow>(),
                             .tokens = tokens.As<int32_t>()},
                            stream);
                   }},
              Ceiling::kRead);
  }
});

// What answers that ask for log-probabilities cost beside the sampler.
const BenchGroup kLogprobs("logprobs", [](Bench& bench) {
  const DeviceBuffer logits = NormalLogits(), tokens = Zeros(kRows * 4);
  for (const int64_t asking : {int64_t{1}, kRows}) {
    std::vector<int32_t> out_row(kRows, -1);
    std::iota(out_row.begin(), out_row.begin() + asking, 0);
    const DeviceBuffer device_out_row = OnDevice(out_row);
    for (const int64_t top : {0, 5, 20}) {
      const DeviceBuffer out =
          Zeros(asking * (1 + top) * static_cast<int64_t>(sizeof(TokenLogprob)));
      bench.Run({.name = "logprobs of " + std::to_string(asking) + " rows of 64, top " +
                         std::to_string(top),
                 .bytes = asking * kVocabulary * 4.0,
                 .launch =
                     [&](int, CUstream_st* stream) {
                       Logprobs({.logits = {logits.As<float>(), kRows, kVocabulary},
                                 .tokens = tokens.As<int32_t>(),
                                 .out_row = device_out_row.As<int32_t>(),
                                 .out = {out.As<TokenLogprob>(), asking, 1 + top}},
                                stream);
                     }},
                Ceiling::kRead);
    }
  }
});

}  // namespace
}  // namespace baton::kernels::cuda
