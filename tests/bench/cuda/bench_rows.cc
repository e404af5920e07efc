#include <algorithm>

#include "kernels/cuda/embedding.h"
#include "kernels/cuda/quantize.h"
#include "kernels/cuda/rms_norm.h"
#include "kernels/cuda/rope.h"
#include "kernels/cuda/window_kv.h"
#include "tests/bench/cuda/batch.h"
#include "tests/bench/cuda/harness.h"

namespace baton::kernels::cuda {
namespace {

std::string Named(const char* op, int64_t rows, int64_t width) {
  return std::string(op) + " " + std::to_string(rows) + " x " + std::to_string(width);
}

std::vector<DeviceBuffer> Random(int sets, int64_t bytes) {
  std::vector<DeviceBuffer> buffers;
  for (int set = 0; set < sets; ++set) buffers.push_back(RandomBuffer(bytes, set));
  return buffers;
}

// Each set holds x, y, codes and scales.
void Norm(Bench& bench, int64_t rows, int64_t n, bool plain, bool quantized) {
  const double bytes =
      rows * (2.0 * n + (plain ? 2.0 * n : 0) + (quantized ? n * (1 + 4. / 128) : 0));
  const int sets = Sets(bytes);
  const auto x = Random(sets, rows * n * 2), y = Random(sets, rows * n * 2),
             codes = Random(sets, rows * n), scales = Random(sets, rows * n / 32);
  const DeviceBuffer weight = RandomBuffer(n * 2, 9);
  const char* name = !quantized ? "rms_norm"
                     : plain    ? "rms_norm + fp8, plain too"
                                : "rms_norm + fp8";
  bench.Run({.name = Named(name, rows, n),
             .bytes = bytes,
             .launch =
                 [&](int set, CUstream_st* stream) {
                   RmsNormParams params = {.x = {x[set].As<BFloat16>(), rows, n},
                                           .weight = weight.As<BFloat16>()};
                   if (plain) params.y = {y[set].As<BFloat16>(), rows, n};
                   if (quantized) {
                     params.quantized = {
                         codes[set].As<uint8_t>(), scales[set].As<float>(), rows, n, n, rows};
                   }
                   RmsNorm(params, stream);
                 },
             .sets = sets});
}

void QuantizeRows(Bench& bench, int64_t rows, int64_t n) {
  const double bytes = rows * n * (3 + 4. / 128);
  const int sets = Sets(bytes);
  const auto x = Random(sets, rows * n * 2), codes = Random(sets, rows * n),
             scales = Random(sets, rows * n / 32);
  bench.Run({.name = Named("quantize", rows, n),
             .bytes = bytes,
             .launch =
                 [&](int set, CUstream_st* stream) {
                   Quantize({x[set].As<BFloat16>(), rows, n},
                            {codes[set].As<uint8_t>(), scales[set].As<float>(), rows, n, n, rows},
                            stream);
                 },
             .sets = sets});
}

void EmbedRows(Bench& bench, int64_t rows, int64_t d) {
  constexpr int64_t kVocabulary = 129'280;
  const DeviceBuffer table = RandomBuffer(kVocabulary * d * 2, 1);
  std::vector<int32_t> tokens(rows);
  for (int64_t i = 0; i < rows; ++i) tokens[i] = static_cast<int32_t>(i * 7919 % kVocabulary);
  const DeviceBuffer d_tokens = OnDevice(tokens);
  const double bytes = rows * 2.0 * d * 5;
  const int sets = Sets(bytes);
  const auto y = Random(sets, rows * d * 8);
  bench.Run({.name = Named("embed to 4 streams", rows, d),
             .bytes = bytes,
             .launch =
                 [&](int set, CUstream_st* stream) {
                   Embed({table.As<BFloat16>(), kVocabulary, d}, d_tokens.As<int32_t>(), 4,
                         {y[set].As<BFloat16>(), rows, 4 * d}, stream);
                 },
             .sets = sets});
}

void Rotate(Bench& bench, int64_t rows, int heads) {
  const RopeTable table({.theta = 160000, .factor = 16});
  const DeviceBuffer rope = Zeros(rows * kRopeDim * 4);
  FillRopeTable(FrequenciesOf(table), 1, rows, rope.As<float>(), nullptr);
  const int64_t width = heads * int64_t{512};
  const double bytes = 4.0 * rows * width + rows * 256;
  const int sets = Sets(bytes);
  const auto q = Random(sets, rows * width * 2);
  bench.Run({.name = Named("q norm + rope", rows, width),
             .bytes = bytes,
             .launch =
                 [&](int set, CUstream_st* stream) {
                   QueryNormRope({.q = {q[set].As<BFloat16>(), rows, width},
                                  .heads = heads,
                                  .rope = rope.As<float>()},
                                 stream);
                 },
             .sets = sets});
  bench.Run(
      {.name = Named("inverse rope", rows, width),
       .bytes = 4.0 * rows * heads * kRopeDim + rows * 256,
       .launch =
           [&](int set, CUstream_st* stream) {
             InverseRope({q[set].As<BFloat16>(), rows, width}, heads, rope.As<float>(), stream);
           },
       .sets = sets});
}

void Window(Bench& bench, int sequences, int rows_each) {
  constexpr int kRing = 136;
  const BenchBatch batch(sequences, rows_each, 4096, 1);
  const int64_t rows = batch.view().rows;
  const bool fused = rows_each <= 8;
  const double bytes =
      rows * (2048.0 + 256) + sequences * std::min(rows_each, kRing) * (fused ? 1024.0 : 2048.0);
  const int sets = Sets(bytes);
  const auto kv = Random(sets, rows * 1024),
             rings = Random(sets, int64_t{sequences} * kRing * 1024);
  const DeviceBuffer weight = RandomBuffer(1024, 2), rope = RandomBuffer(rows * 256, 3);
  bench.Run({.name = Named("window kv + ring", rows, 512),
             .bytes = bytes,
             .launch =
                 [&](int set, CUstream_st* stream) {
                   const SlotRings<BFloat16> ring = {.data = rings[set].As<BFloat16>(),
                                                     .rows = kRing,
                                                     .width = 512,
                                                     .slot_stride = kRing * 512};
                   const MatrixView<BFloat16> view(kv[set].As<BFloat16>(), rows, 512);
                   WindowKv({.batch = batch.view(),
                             .kv = view,
                             .weight = weight.As<BFloat16>(),
                             .rope = rope.As<float>(),
                             .ring = fused ? ring : SlotRings<BFloat16>{}},
                            stream);
                   if (!fused) WriteRings(batch.view(), view, ring, stream);
                 },
             .sets = sets});
}

const BenchGroup kNorm("norm", [](Bench& bench) {
  for (const int64_t rows : {16384, 64}) {
    for (const int64_t n : {1024, 1536, 4096, 7168}) {
      Norm(bench, rows, n, /*plain=*/true, /*quantized=*/false);
      Norm(bench, rows, n, /*plain=*/false, /*quantized=*/true);
    }
    Norm(bench, rows, 4096, /*plain=*/true, /*quantized=*/true);
    QuantizeRows(bench, rows, 2048);
    QuantizeRows(bench, rows, 8192);
  }
});

const BenchGroup kRope("rope", [](Bench& bench) {
  Rotate(bench, 8192, 64);
  Rotate(bench, 4096, 128);
  Rotate(bench, 64, 64);
  Window(bench, 1, 131'072);
  Window(bench, 1, 8192);
  Window(bench, 64, 1);
});

const BenchGroup kEmbed("embed", [](Bench& bench) {
  EmbedRows(bench, 8192, 4096);
  EmbedRows(bench, 8192, 7168);
  EmbedRows(bench, 64, 4096);
});

}  // namespace
}  // namespace baton::kernels::cuda
