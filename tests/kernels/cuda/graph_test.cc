#include "kernels/runtime/graph.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/cache_entry.h"
#include "kernels/cuda/compressor.h"
#include "kernels/cuda/index_query.h"
#include "kernels/cuda/index_select.h"
#include "kernels/cuda/rope.h"
#include "kernels/cuda/sparse_attention.h"
#include "kernels/cuda/window_kv.h"
#include "tests/kernels/cuda/support.h"

// The ops of a CSA layer as a captured graph: what it was captured over says nothing about what it
// is replayed over.

namespace baton::kernels::cuda {
namespace {

constexpr int kHeads = 8;
constexpr int kIndexHeads = 4;
constexpr int kTopK = 64;
constexpr int kRows = 12;
constexpr int kSequences = 4;
constexpr int kMaxRows = 4;
constexpr int kPerPage = 64;
constexpr int kPages = 13;  // of a sequence
constexpr int kMaxEntries = kPages * kPerPage;
constexpr int kWindowRing = 136;
constexpr int kStateRing = 16;

// A layer's inputs, state and outputs. Two made alike hold the same.
struct Layer {
  Layer() {
    FillRopeTable(frequencies, kCsaRatio, kMaxEntries, entry_rope.get(), TestStream().get());
  }

  void Launch(const BatchView& batch, int max_entries, CUstream_st* stream) {
    const PagedPool entries = Pool(512, kv_pool);
    const PagedPool keys = Pool(128, key_pool);
    const SlotRings<BFloat16> window = {.data = window_ring.get(),
                                        .rows = kWindowRing,
                                        .width = 512,
                                        .slot_stride = kWindowRing * 512};
    WindowKv({.batch = batch,
              .kv = {kv.get(), batch.rows, 512},
              .weight = weight.get(),
              .rope = row_rope.get(),
              .ring = window},
             stream);
    Compress(Compressor(batch, kv_projection, kv_ring, entries), stream);
    Compress(Compressor(batch, key_projection, key_ring, keys), stream);
    IndexQuery({.q = index_q.get(),
                .w = index_w.get(),
                .rows = batch.rows,
                .heads = kIndexHeads,
                .rope = row_rope.get()},
               stream);
    IndexSelect({.batch = batch,
                 .q = index_q.get(),
                 .w = index_w.get(),
                 .heads = kIndexHeads,
                 .keys = keys,
                 .max_entries = max_entries,
                 .selected = selected.get(),
                 .k = kTopK,
                 .scratch = scores.get(),
                 .scratch_bytes = scores.size() * 4},
                stream);
    SparseAttentionParams attention = {.batch = batch,
                                       .q = q.get(),
                                       .heads = kHeads,
                                       .sinks = sinks.get(),
                                       .scale = 1.0f / std::sqrt(512.0f),
                                       .chunk = kv.get(),
                                       .rings = {.data = window_ring.get(),
                                                 .rows = kWindowRing,
                                                 .width = 512,
                                                 .slot_stride = kWindowRing * 512},
                                       .ratio = kCsaRatio,
                                       .pool = entries,
                                       .max_entries = kTopK,
                                       .selected = selected.get(),
                                       .k = kTopK,
                                       .out = out.get(),
                                       .scratch = parts.get()};
    EXPECT_LE(SparseAttentionScratchBytes(attention), parts.size() * 4);
    SparseAttention(attention, stream);
  }

  // Rows [0, rows) of the outputs and all of the state: the same bits.
  void ExpectSame(const Layer& other, int rows) const {
    const auto same = [](const auto& mine, const auto& theirs, int64_t count) {
      return CountDifferent(mine.Download(0, count), theirs.Download(0, count));
    };
    EXPECT_EQ(same(selected, other.selected, int64_t{rows} * kTopK), 0);
    EXPECT_EQ(same(out, other.out, int64_t{rows} * kHeads * 512), 0);
    EXPECT_EQ(same(window_ring, other.window_ring, window_ring.size()), 0);
    EXPECT_EQ(same(kv_ring, other.kv_ring, kv_ring.size()), 0);
    EXPECT_EQ(same(key_ring, other.key_ring, key_ring.size()), 0);
    EXPECT_EQ(same(kv_pool, other.kv_pool, kv_pool.size()), 0);
    EXPECT_EQ(same(key_pool, other.key_pool, key_pool.size()), 0);
  }

  static constexpr int64_t kPoolEntries = int64_t{1 + kSequences * kPages} * kPerPage;

  static PagedPool Pool(int head_dim, const DeviceArray<BFloat16>& memory) {
    return {.data = reinterpret_cast<std::byte*>(memory.get()),
            .format = EntryFormat::kBf16,
            .head_dim = head_dim,
            .entries_per_page = kPerPage,
            .page_bytes = PageBytes(EntryFormat::kBf16, head_dim, kPerPage)};
  }
  CompressParams Compressor(const BatchView& batch, const DeviceArray<float>& projection,
                            const DeviceArray<float>& ring, const PagedPool& pool) const {
    const int width = 4 * pool.head_dim;
    return {.batch = batch,
            .chunk = {projection.get(), batch.rows, width},
            .bias = bias.get(),
            .ring = {.data = ring.get(),
                     .rows = kStateRing,
                     .width = width,
                     .slot_stride = int64_t{kStateRing} * width},
            .weight = weight.get(),
            .rope = {.frequencies = frequencies, .step = kCsaRatio, .table = entry_rope.get()},
            .pool = pool};
  }

  DeviceArray<BFloat16> kv{RandomValues<BFloat16>(kRows * 512, 1)};
  DeviceArray<BFloat16> q{RandomValues<BFloat16>(kRows * kHeads * 512, 2)};
  DeviceArray<BFloat16> index_q{RandomValues<BFloat16>(kRows * kIndexHeads * 128, 3)};
  DeviceArray<BFloat16> index_w{RandomValues<BFloat16>(kRows * kIndexHeads, 4)};
  DeviceArray<float> kv_projection{RandomValues<float>(kRows * 2048, 5)};
  DeviceArray<float> key_projection{RandomValues<float>(kRows * 512, 6)};
  DeviceArray<BFloat16> weight{RandomValues<BFloat16>(512, 7)};
  DeviceArray<float> bias{RandomValues<float>(kCsaRatio * 1024, 8)};
  DeviceArray<float> sinks{RandomValues<float>(kHeads, 9)};
  DeviceArray<float> row_rope{RandomValues<float>(kRows * kRopeDim, 10)};
  const RopeFrequencies frequencies = FrequenciesOf(RopeTable({.theta = 160000, .factor = 16}));
  DeviceArray<float> entry_rope{int64_t{kMaxEntries} * kRopeDim};
  DeviceArray<BFloat16> window_ring{
      RandomValues<BFloat16>(int64_t{kSequences} * kWindowRing * 512, 11)};
  DeviceArray<float> kv_ring{RandomValues<float>(int64_t{kSequences} * kStateRing * 2048, 12)};
  DeviceArray<float> key_ring{RandomValues<float>(int64_t{kSequences} * kStateRing * 512, 13)};
  DeviceArray<BFloat16> kv_pool{RandomValues<BFloat16>(kPoolEntries * 512, 14)};
  DeviceArray<BFloat16> key_pool{RandomValues<BFloat16>(kPoolEntries * 128, 15)};
  DeviceArray<int32_t> selected{int64_t{kRows} * kTopK};
  DeviceArray<float> scores{int64_t{kRows} * kMaxEntries};
  DeviceArray<BFloat16> out{int64_t{kRows} * kHeads * 512};
  DeviceArray<float> parts{int64_t{1} << 20};
};

// Sequences {start, rows} in their slots and pages, padded to kRows rows.
struct Batch {
  explicit Batch(std::vector<std::pair<int32_t, int32_t>> sequences)
      : real([&] {
          int rows = 0;
          for (const auto& [start, count] : sequences) rows += count;
          return rows;
        }()),
        batch(Layout(sequences), kRows - real) {}

  static std::vector<TestBatch::Sequence> Layout(
      const std::vector<std::pair<int32_t, int32_t>>& sequences) {
    std::vector<TestBatch::Sequence> result;
    for (int s = 0; s < kSequences; ++s) {
      std::vector<int32_t> pages(kPages);
      std::iota(pages.begin(), pages.end(), 1 + s * kPages);
      std::reverse(pages.begin(), pages.end());
      const auto [start, rows] = sequences[s];
      result.push_back(
          {.start = start, .rows = rows, .slot = (s + 2) % kSequences, .pages = pages});
    }
    return result;
  }

  // Puts this batch where the view of another one points.
  void CopyTo(const BatchView& target) const {
    const auto copy = [](const int32_t* to, const int32_t* from, int64_t count) {
      CopyAsync(const_cast<int32_t*>(to), from, count * int64_t{sizeof(int32_t)},
                TestStream().get());
    };
    const BatchView& view = batch.view();
    copy(target.position, view.position, kRows);
    copy(target.sequence, view.sequence, kRows);
    copy(target.row_begin, view.row_begin, kSequences + 1);
    copy(target.start, view.start, kSequences);
    copy(target.slot, view.slot, kSequences);
    copy(target.page_table, view.page_table, kSequences * kPages);
  }

  int real;
  TestBatch batch;
};

class GraphTest : public CudaTest {};

TEST_F(GraphTest, CapturedOverShortContextsServesLongOnesAndPaddedRows) {
  const Batch empty({{0, 0}, {0, 0}, {0, 0}, {0, 0}});
  const Batch one({{5, 1}, {0, 0}, {0, 0}, {0, 0}});
  const Batch brief({{0, 1}, {0, 0}, {7, 2}, {130, 1}});
  const Batch extended({{3100, 4}, {1023, 3}, {0, 0}, {2047, 4}});
  const Batch full({{3104, 3}, {1026, 3}, {9, 3}, {2051, 3}});

  Layer direct;
  Layer replayed;
  const Batch captured(
      {{5, 1}, {0, 0}, {0, 0}, {0, 0}});  // what the graph sees when it is captured
  BatchView view = captured.batch.view();
  view.max_rows = kMaxRows;
  CUstream_st* stream = TestStream().get();
  const Graph graph = Graph::Capture(stream, [&] { replayed.Launch(view, kMaxEntries, stream); });
  for (const Batch* batch : {&one, &extended, &empty, &brief, &full, &extended}) {
    // Launched for just what there is, and replayed for whatever there may be.
    BatchView tight = batch->batch.view();
    int most = 1;
    for (const int32_t position : batch->batch.positions()) {
      most = std::max(most, (position + 1) / kCsaRatio);
    }
    direct.Launch(tight, most, stream);
    batch->CopyTo(view);
    graph.Launch(stream);
    TestStream().Synchronize();
    replayed.ExpectSame(direct, batch->real);
  }
}

}  // namespace
}  // namespace baton::kernels::cuda
