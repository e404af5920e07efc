#include <algorithm>
#include <numeric>
#include <random>

#include "kernels/cache_entry.h"
#include "kernels/cuda/compressor.h"
#include "kernels/cuda/entry_store.h"
#include "kernels/cuda/rope.h"
#include "tests/bench/cuda/batch.h"
#include "tests/bench/cuda/harness.h"

namespace baton::kernels::cuda {
namespace {

struct Kind {
  const char* name;
  EntryFormat format;
  int head_dim;
};
constexpr Kind kKinds[] = {{"index bf16", EntryFormat::kBf16, 128},
                           {"index fp8", EntryFormat::kFp8Index, 128},
                           {"index fp4", EntryFormat::kFp4Index, 128},
                           {"kv bf16", EntryFormat::kBf16, 512},
                           {"kv fp8", EntryFormat::kFp8Packed, 512}};

const char* NameOf(Numerics numerics) {
  return numerics == Numerics::kReference ? "reference" : "exact";
}

RopeFrequencies Frequencies() { return FrequenciesOf(RopeTable({.theta = 160000, .factor = 16})); }
DeviceBuffer RopeTableOf(int step, int64_t entries) {
  DeviceBuffer rope = Zeros(entries * kRopeDim * 4);
  FillRopeTable(Frequencies(), step, entries, rope.As<float>(), nullptr);
  return rope;
}
EntryRope RopeOf(int step, const DeviceBuffer& table) {
  return {.frequencies = Frequencies(), .step = step, .table = table.As<float>()};
}

PagedPool PoolOf(const Kind& kind, int per_page, const DeviceBuffer& memory) {
  return {.data = memory.data(),
          .format = kind.format,
          .head_dim = kind.head_dim,
          .entries_per_page = per_page,
          .page_bytes = PageBytes(kind.format, kind.head_dim, per_page)};
}

// Rows of 16 sequences, each with its entries in order, into shuffled pages.
void Store(Bench& bench, const Kind& kind, Numerics numerics, int64_t rows) {
  constexpr int kSequences = 16;
  constexpr int kPerPage = 64;
  const auto entries = static_cast<int>(rows / kSequences);
  const int pages_each = (entries + kPerPage - 1) / kPerPage;
  std::vector<int32_t> sequence(rows), entry(rows), pages(kSequences * pages_each);
  for (int64_t i = 0; i < rows; ++i) {
    sequence[i] = static_cast<int32_t>(i / entries);
    entry[i] = static_cast<int32_t>(i % entries);
  }
  std::iota(pages.begin(), pages.end(), 0);
  std::shuffle(pages.begin(), pages.end(), std::mt19937(1));
  const double bytes = rows * (2.0 * kind.head_dim + RecordBytes(kind.format, kind.head_dim) + 8);
  const int sets = std::max(2, Sets(bytes));
  const int64_t pool_bytes =
      static_cast<int64_t>(pages.size()) * PageBytes(kind.format, kind.head_dim, kPerPage);
  const DeviceBuffer d_sequence = OnDevice(sequence), d_entry = OnDevice(entry),
                     d_pages = OnDevice(pages), rope = RopeTableOf(4, entries),
                     weight = RandomBuffer(kind.head_dim * 2, 3);
  std::vector<DeviceBuffer> pooled, memory;
  for (int set = 0; set < sets; ++set) {
    pooled.push_back(RandomBuffer(rows * kind.head_dim * 2, set));
    memory.push_back(Zeros(pool_bytes));
  }
  bench.Run({.name = std::string("store ") + kind.name + " " + NameOf(numerics) + ", " +
                     std::to_string(rows) + " rows",
             .bytes = bytes,
             .launch =
                 [&](int set, CUstream_st* stream) {
                   StoreEntries({.pooled = pooled[set].As<BFloat16>(),
                                 .sequence = d_sequence.As<int32_t>(),
                                 .entry = d_entry.As<int32_t>(),
                                 .rows = rows,
                                 .page_table = d_pages.As<int32_t>(),
                                 .max_pages = pages_each,
                                 .weight = weight.As<BFloat16>(),
                                 .rope = RopeOf(4, rope),
                                 .numerics = numerics,
                                 .pool = PoolOf(kind, kPerPage, memory[set])},
                                stream);
                 },
             .sets = sets});
}

// Sequences of `rows_each` rows from `start` on; bytes are those of the rows, the entries that they
// close and the ring rows that they leave.
void CompressRows(Bench& bench, const Kind& kind, int ratio, int sequences, int rows_each,
                  int start) {
  const bool overlapping = ratio == kCsaRatio;
  const int width = kind.head_dim * (overlapping ? 4 : 2);
  const int ring_rows = (overlapping ? 8 : 128) + 8;
  const int entries = (start + rows_each) / ratio + 1;
  const int per_page = 256 / ratio;
  const BenchBatch batch(sequences, rows_each, start, entries, per_page);
  const int closed = (start + rows_each) / ratio - start / ratio;
  const int from_ring = std::max(0, (overlapping ? 8 : 128) - rows_each);
  const double bytes =
      sequences * (rows_each * 4.0 * width + std::min(rows_each, ring_rows) * 4.0 * width +
                   closed * static_cast<double>(RecordBytes(kind.format, kind.head_dim)) +
                   (closed > 0 ? from_ring * 4.0 * width / (overlapping ? 2 : 1) : 0));
  const int sets = Sets(bytes);
  const DeviceBuffer bias = RandomBuffer(int64_t{ratio} * width * 2, 5),
                     weight = RandomBuffer(kind.head_dim * 2, 3),
                     rope = RopeTableOf(ratio, entries);
  const int64_t page_bytes = PageBytes(kind.format, kind.head_dim, per_page);
  const int64_t ring_bytes = int64_t{sequences} * ring_rows * width * 4;
  std::vector<DeviceBuffer> chunk, rings, memory;
  for (int set = 0; set < sets; ++set) {
    chunk.push_back(RandomBuffer(int64_t{batch.view().rows} * width * 4, set));
    rings.push_back(RandomBuffer(ring_bytes, set + 100));
    memory.push_back(Zeros(batch.pages() * page_bytes));
  }
  bench.Run({.name = "compress " + std::to_string(ratio) + ":1 " + kind.name + ", " +
                     std::to_string(sequences) + " x " + std::to_string(rows_each) + " rows",
             .bytes = bytes,
             .launch =
                 [&](int set, CUstream_st* stream) {
                   Compress({.batch = batch.view(),
                             .ratio = ratio,
                             .chunk = {chunk[set].As<float>(), batch.view().rows, width},
                             .bias = bias.As<float>(),
                             .ring = {.data = rings[set].As<float>(),
                                      .rows = ring_rows,
                                      .width = width,
                                      .slot_stride = int64_t{ring_rows} * width},
                             .weight = weight.As<BFloat16>(),
                             .rope = RopeOf(ratio, rope),
                             .pool = PoolOf(kind, per_page, memory[set])},
                            stream);
                 },
             .sets = sets});
}

const BenchGroup kStore("store", [](Bench& bench) {
  for (const int64_t rows : {int64_t{1} << 20, int64_t{16}}) {
    for (const Kind& kind : kKinds) {
      for (const Numerics numerics : {Numerics::kReference, Numerics::kExact}) {
        Store(bench, kind, numerics, rows);
      }
    }
  }
});

const BenchGroup kCompress("compress", [](Bench& bench) {
  for (const Kind& kind : {kKinds[0], kKinds[3], kKinds[4]}) {
    CompressRows(bench, kind, kCsaRatio, 1, 8192, 8192);
    CompressRows(bench, kind, kCsaRatio, 64, 1, 4096 + 3);  // every row closes an entry
    CompressRows(bench, kind, kCsaRatio, 64, 1, 4096);      // none does
  }
  CompressRows(bench, kKinds[3], kHcaRatio, 1, 8192, 8192);
  CompressRows(bench, kKinds[3], kHcaRatio, 64, 1, 4096 + 127);
  CompressRows(bench, kKinds[3], kHcaRatio, 64, 1, 4096);
});

}  // namespace
}  // namespace baton::kernels::cuda
