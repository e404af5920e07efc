#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "kernels/cuda/sparse_attention.h"
#include "tests/bench/cuda/batch.h"
#include "tests/bench/cuda/harness.h"

// Attention at Flash's shapes: 64 heads of 512, window 128.

namespace baton::kernels::cuda {

namespace {

constexpr int kHeads = 64;
constexpr int kDim = 512;
constexpr int kWindow = 128;
constexpr int kRingRows = kWindow + 8;

struct Shape {
  std::string name;
  int sequences;
  int rows_each;
  int context;  // position behind the last row
  int ratio;    // 0: window only
  int k;        // 0: every visible entry
  EntryFormat format = EntryFormat::kBf16;
};

// Ascending random entries: what a selection looks like to the memory system.
std::vector<int32_t> RandomSelection(int rows, int k, int entries) {
  std::mt19937 engine(1);
  std::vector<int32_t> selected;
  for (int row = 0; row < rows; ++row) {
    for (int i = 0; i < k; ++i) {
      const int64_t begin = int64_t{i} * entries / k;
      const int64_t end = int64_t{i + 1} * entries / k;
      selected.push_back(
          static_cast<int32_t>(begin + engine() % std::max<int64_t>(1, end - begin)));
    }
  }
  return selected;
}

using Variant = void (*)(const SparseAttentionParams&, CUstream_st*);

void BenchAttention(Bench& bench, const Shape& shape, Variant variant = SparseAttention) {
  const int rows = shape.sequences * shape.rows_each;
  const int entries = shape.ratio == 0 ? 0 : shape.context / shape.ratio;
  const int per_page = shape.ratio == 128 ? 2 : kBenchEntriesPerPage;
  const BenchBatch batch(shape.sequences, shape.rows_each, shape.context - shape.rows_each,
                         std::max(1, entries), per_page);
  const int64_t page_bytes = PageBytes(shape.format, kDim, per_page);
  const DeviceBuffer pool = RandomBuffer(batch.pages() * page_bytes, 1);
  const DeviceBuffer q = RandomBuffer(int64_t{rows} * kHeads * kDim * 2, 2);
  const DeviceBuffer chunk = RandomBuffer(int64_t{rows} * kDim * 2, 3);
  const DeviceBuffer rings = RandomBuffer(int64_t{shape.sequences} * kRingRows * kDim * 2, 4);
  const DeviceBuffer sinks = Zeros(kHeads * 4);
  const DeviceBuffer out = Zeros(int64_t{rows} * kHeads * kDim * 2);
  // Rows of a prefill chunk choose among what its first row sees.
  const int seen = shape.ratio == 0 ? 0 : (shape.context - shape.rows_each + 1) / shape.ratio;
  const DeviceBuffer selected = OnDevice(RandomSelection(shape.k > 0 ? rows : 1, shape.k, seen));
  SparseAttentionParams params = {.batch = batch.view(),
                                  .q = q.As<BFloat16>(),
                                  .heads = kHeads,
                                  .sinks = sinks.As<float>(),
                                  .scale = 1.0f / std::sqrt(static_cast<float>(kDim)),
                                  .window = kWindow,
                                  .chunk = chunk.As<BFloat16>(),
                                  .rings = {.data = rings.As<BFloat16>(),
                                            .rows = kRingRows,
                                            .width = kDim,
                                            .slot_stride = kRingRows * kDim}};
  params.ratio = shape.ratio;
  params.pool = {.data = pool.data(),
                 .format = shape.format,
                 .head_dim = kDim,
                 .entries_per_page = per_page,
                 .page_bytes = page_bytes};
  params.max_entries = shape.k > 0 ? shape.k : entries;
  params.selected = shape.k > 0 ? selected.As<int32_t>() : nullptr;
  params.k = shape.k;
  params.out = out.As<BFloat16>();
  const DeviceBuffer scratch = Zeros(SparseAttentionScratchBytes(params));
  params.scratch = scratch.As<float>();

  const double entry_bytes = shape.format == EntryFormat::kBf16 ? 1024 : 584;
  double candidates = 0;
  for (int row = 0; row < shape.rows_each; ++row) {
    const int position = shape.context - shape.rows_each + row;
    const int compressed = shape.ratio == 0 ? 0
                           : shape.k > 0    ? shape.k
                                            : (position + 1) / shape.ratio;
    candidates += static_cast<double>(shape.sequences) * (kWindow + compressed);
  }
  const double gathered = candidates - static_cast<double>(rows) * kWindow;
  const bool decode = shape.rows_each <= 8;
  bench.Run({.name = shape.name,
             .bytes = 4.0 * rows * kHeads * kDim +
                      (decode ? entry_bytes * gathered + 1024.0 * kWindow * rows : 0),
             .flops = candidates * kHeads * kDim * 4,
             .launch = [=](int, CUstream_st* stream) { variant(params, stream); }},
            decode ? Ceiling::kRead : Ceiling::kBf16Gemm);
}

const BenchGroup kAttention("attention", [](Bench& bench) {
  for (const EntryFormat format : {EntryFormat::kBf16, EntryFormat::kFp8Packed}) {
    const std::string suffix = format == EntryFormat::kBf16 ? " bf16" : " fp8";
    const Shape shapes[] = {
        {"decode 64 x 32K CSA 512", 64, 1, 32768, 4, 512, format},
        {"decode 128 x 32K CSA 512", 128, 1, 32768, 4, 512, format},
        {"decode 64 x 2 rows x 32K CSA 512", 64, 2, 32768, 4, 512, format},
        {"decode 64 x 32K HCA", 64, 1, 32768, 128, 0, format},
        {"decode 1 x 1M HCA", 1, 1, 1048576, 128, 0, format},
        {"prefill 8192 at 22.5K CSA 512", 1, 8192, 22528, 4, 512, format},
        {"prefill 4096 at 64K HCA", 1, 4096, 65536, 128, 0, format},
    };
    for (Shape shape : shapes) {
      shape.name += suffix;
      BenchAttention(bench, shape);
    }
  }
  BenchAttention(bench, {"decode 64 window", 64, 1, 32768, 0, 0});
  BenchAttention(bench, {"prefill 8192 window", 1, 8192, 22528, 0, 0});
  BenchAttention(bench, {"mma.sync decode 64 x 32K CSA 512 bf16", 64, 1, 32768, 4, 512},
                 SparseAttentionPortable);
  BenchAttention(bench, {"mma.sync prefill 8192 at 22.5K CSA 512 bf16", 1, 8192, 22528, 4, 512},
                 SparseAttentionPortable);
});

}  // namespace

}  // namespace baton::kernels::cuda
