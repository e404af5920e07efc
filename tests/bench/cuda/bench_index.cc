#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/index_logits.h"
#include "kernels/cuda/index_query.h"
#include "kernels/cuda/topk.h"
#include "kernels/index_select.h"
#include "tests/bench/cuda/batch.h"
#include "tests/bench/cuda/harness.h"

// The indexer at Flash's shapes: 64 heads of 128, pages of 64 entries.

namespace baton::kernels::cuda {

namespace {

constexpr int kHeads = 64;

struct NamedFormat {
  const char* name;
  EntryFormat format;
};
constexpr NamedFormat kFormats[] = {
    {"bf16", EntryFormat::kBf16}, {"fp8", EntryFormat::kFp8Index}, {"fp4", EntryFormat::kFp4Index}};

using Variant = void (*)(const IndexLogitsParams&, CUstream_st*);

// `rows` rows in all of `sequences` sequences, the last of each seeing `entries` entries.
void BenchLogits(Bench& bench, const std::string& name, Variant variant, EntryFormat format,
                 int sequences, int rows, int entries) {
  const BenchBatch batch(sequences, rows / sequences, 4 * entries - rows / sequences, entries);
  const int64_t page_bytes = PageBytes(format, kIndexDim, kBenchEntriesPerPage);
  const DeviceBuffer pool = RandomBuffer(batch.pages() * page_bytes, 1);
  const DeviceBuffer q = RandomBuffer(int64_t{rows} * kHeads * kIndexDim * 2, 2);
  const DeviceBuffer w = RandomBuffer(int64_t{rows} * kHeads * 2, 3);
  const DeviceBuffer scores = Zeros(int64_t{rows} * entries * 4);
  const IndexLogitsParams params = {.batch = batch.view(),
                                    .first_row = 0,
                                    .rows = rows,
                                    .q = q.As<BFloat16>(),
                                    .w = w.As<BFloat16>(),
                                    .heads = kHeads,
                                    .keys = {.data = pool.data(),
                                             .format = format,
                                             .head_dim = kIndexDim,
                                             .entries_per_page = kBenchEntriesPerPage,
                                             .page_bytes = page_bytes},
                                    .max_entries = entries,
                                    .scores = scores.As<float>(),
                                    .stride = entries};
  double products = 0;  // of a query row and a key
  for (int row = 0; row < rows / sequences; ++row) {
    products += static_cast<double>(sequences) * (entries - (rows / sequences - 1 - row) / 4);
  }
  const bool decode = rows / sequences < 4;
  bench.Run({.name = name,
             .bytes = static_cast<double>(sequences) * entries *
                      static_cast<double>(page_bytes / kBenchEntriesPerPage),
             .flops = products * kHeads * kIndexDim * 2,
             .launch = [=](int, CUstream_st* stream) { variant(params, stream); }},
            decode ? Ceiling::kRead : Ceiling::kBf16Gemm);
}

const BenchGroup kLogits("index_logits", [](Bench& bench) {
  for (const auto& [name, format] : kFormats) {
    const std::string suffix = std::string(" ") + name;
    BenchLogits(bench, "decode 64 x 32K" + suffix, IndexLogitsSm90a, format, 64, 64, 32768);
    BenchLogits(bench, "decode 64 x 2 rows x 32K" + suffix, IndexLogitsSm90a, format, 64, 128,
                32768);
    BenchLogits(bench, "decode 1 x 256K" + suffix, IndexLogitsSm90a, format, 1, 1, 262144);
    BenchLogits(bench, "prefill 8192 x 5.6K" + suffix, IndexLogitsSm90a, format, 1, 8192, 5632);
    BenchLogits(bench, "prefill 2048 x 32K" + suffix, IndexLogitsSm90a, format, 1, 2048, 32768);
  }
  BenchLogits(bench, "mma.sync decode 64 x 32K bf16", IndexLogitsPortable, EntryFormat::kBf16, 64,
              64, 32768);
  BenchLogits(bench, "mma.sync prefill 8192 x 5.6K bf16", IndexLogitsPortable, EntryFormat::kBf16,
              1, 8192, 5632);
});

void BenchTopK(Bench& bench, const std::string& name, int rows, int entries, int k) {
  const BenchBatch batch(rows, 1, 4 * entries, 64);
  const double bytes = static_cast<double>(rows) * entries * 4;
  const int sets = Sets(bytes);
  const auto scores = std::make_shared<std::vector<DeviceBuffer>>();
  for (int set = 0; set < sets; ++set) {
    scores->push_back(RandomBuffer(static_cast<int64_t>(bytes), static_cast<uint32_t>(set)));
  }
  const DeviceBuffer selected = Zeros(int64_t{rows} * k * 4);
  bench.Run({.name = name,
             .bytes = bytes,
             .launch =
                 [&](int set, CUstream_st* stream) {
                   TopK({.batch = batch.view(),
                         .first_row = 0,
                         .rows = rows,
                         .scores = (*scores)[set].As<float>(),
                         .stride = entries,
                         .max_entries = entries,
                         .selected = selected.As<int32_t>(),
                         .k = k},
                        stream);
                 },
             .sets = sets},
            Ceiling::kRead);
}

const BenchGroup kTopK("topk", [](Bench& bench) {
  BenchTopK(bench, "512 of 64 x 32K", 64, 32768, 512);
  BenchTopK(bench, "2048 of 64 x 32K", 64, 32768, 2048);
  BenchTopK(bench, "512 of 2048 x 32K", 2048, 32768, 512);
  BenchTopK(bench, "2048 of 2048 x 32K", 2048, 32768, 2048);
  BenchTopK(bench, "512 of 512 x 256K", 512, 262144, 512);
  BenchTopK(bench, "512 of 1 x 256K", 1, 262144, 512);
});

const BenchGroup kQuery("index_query", [](Bench& bench) {
  for (const int rows : {64, 8192}) {
    const int64_t q_bytes = int64_t{rows} * kHeads * kIndexDim * 2;
    const DeviceBuffer q = RandomBuffer(q_bytes, 1);
    const DeviceBuffer w = RandomBuffer(int64_t{rows} * kHeads * 2, 2);
    const DeviceBuffer rope = Zeros(int64_t{rows} * 64 * 4);
    bench.Run({.name = std::to_string(rows) + " rows",
               .bytes = 2.0 * static_cast<double>(q_bytes),
               .launch = [&](int, CUstream_st* stream) {
                 IndexQuery({.q = q.As<BFloat16>(),
                             .w = w.As<BFloat16>(),
                             .rows = rows,
                             .heads = kHeads,
                             .rope = rope.As<float>()},
                            stream);
               }});
  }
});

}  // namespace

}  // namespace baton::kernels::cuda
