#include <cstdint>
#include <random>
#include <vector>

#include <benchmark/benchmark.h>

#include "common/base/bf16.h"
#include "kernels/cache_entry.h"
#include "kernels/cache_view.h"
#include "kernels/compressor.h"
#include "kernels/gemm.h"
#include "kernels/hyper_connection.h"
#include "kernels/index_select.h"
#include "kernels/moe.h"
#include "kernels/quantize.h"
#include "kernels/sparse_attention.h"

// CPU ops at the shapes of the small test model. One thread, so that a figure can be held against
// one core's peak; GFLOP/s are given where arithmetic is the bound.

namespace baton::kernels {
namespace {

constexpr int kHeadDim = 512;
constexpr int kHeads = 4;
constexpr int kIndexHeads = 8;
constexpr int kPageEntries = 64;

ThreadPool& Pool() {
  static ThreadPool pool(1);
  return pool;
}

template <typename T>
std::vector<T> Random(int64_t count) {
  std::mt19937 engine(7);
  std::normal_distribution<float> normal;
  std::vector<T> values(count);
  for (T& value : values) value = T(normal(engine));
  return values;
}

void CountFlops(benchmark::State& state, double flops) {
  state.counters["GFLOP/s"] =
      benchmark::Counter(flops * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

void BM_Gemm(benchmark::State& state) {
  const int64_t m = state.range(0), n = state.range(1), k = state.range(2);
  const auto x = Random<BFloat16>(m * k);
  const auto rows = Random<BFloat16>(n * k);
  const auto w = PackedMatrix::FromRows(MatrixView<const BFloat16>(rows.data(), n, k));
  std::vector<BFloat16> y(m * n);
  for (auto _ : state) {
    Gemm({x.data(), m, k}, w, MatrixView<BFloat16>(y.data(), m, n), Pool());
    benchmark::DoNotOptimize(y.data());
  }
  CountFlops(state, 2.0 * m * n * k);
}
BENCHMARK(BM_Gemm)
    ->Args({256, 2048, 128})
    ->Args({256, 256, 256})
    ->Args({256, 1024, 256})
    ->Args({256, 128, 1024})
    ->Args({1, 2048, 128})
    ->Args({1, 1024, 256})
    ->Args({8, 1024, 256});

// Rows at the end of a context of range(1) tokens; range(2) = topk.
void BM_IndexSelect(benchmark::State& state) {
  const int64_t rows = state.range(0), tokens = state.range(1), topk = state.range(2);
  const int64_t entries = tokens / 4;
  auto keys = Random<BFloat16>((entries + kPageEntries) * kIndexDim);
  std::vector<int32_t> pages((entries + kPageEntries - 1) / kPageEntries);
  for (size_t i = 0; i < pages.size(); ++i) pages[i] = static_cast<int32_t>(i);
  const auto q = Random<BFloat16>(rows * kIndexHeads * kIndexDim);
  const auto w = Random<BFloat16>(rows * kIndexHeads);
  std::vector<int32_t> selected(rows * topk);
  const IndexSelectParams params = {
      .q = {q.data(), rows, kIndexHeads * kIndexDim},
      .w = {w.data(), rows, kIndexHeads},
      .heads = kIndexHeads,
      .start = tokens - rows,
      .keys = {.data = reinterpret_cast<std::byte*>(keys.data()),
               .format = EntryFormat::kBf16,
               .head_dim = kIndexDim,
               .entries_per_page = kPageEntries,
               .page_bytes = PageBytes(EntryFormat::kBf16, kIndexDim, kPageEntries)},
      .pages = {pages},
      .selected = {selected.data(), rows, topk}};
  for (auto _ : state) {
    IndexSelect({&params, 1}, Pool());
    benchmark::DoNotOptimize(selected.data());
  }
  CountFlops(state, 2.0 * rows * entries * kIndexHeads * kIndexDim);
}
BENCHMARK(BM_IndexSelect)
    ->Args({256, 4509, 512})
    ->Args({256, 22000, 512})
    ->Args({1, 4509, 512})
    ->Args({1, 22000, 512});

void BM_TopK(benchmark::State& state) {
  const auto scores = Random<float>(state.range(0));
  std::vector<int32_t> selected(512);
  for (auto _ : state) {
    TopK(scores, selected);
    benchmark::DoNotOptimize(selected.data());
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(BM_TopK)->Arg(1127)->Arg(5500)->Arg(250000);

// range(1) compressed entries, every other of twice as many; range(2) = EntryFormat.
void BM_SparseAttention(benchmark::State& state) {
  const int64_t rows = state.range(0), count = state.range(1);
  const auto format = static_cast<EntryFormat>(state.range(2));
  const int64_t page_bytes = PageBytes(format, kHeadDim, kPageEntries);
  const int64_t page_count = (2 * count + kPageEntries) / kPageEntries;
  std::vector<std::byte> pool_memory(page_count * page_bytes);
  std::vector<int32_t> pages(page_count);
  for (size_t i = 0; i < pages.size(); ++i) pages[i] = static_cast<int32_t>(i);
  const auto q = Random<BFloat16>(rows * kHeads * kHeadDim);
  auto chunk = Random<BFloat16>(rows * kHeadDim);
  auto ring = Random<BFloat16>(136 * kHeadDim);
  const std::vector<float> sinks(kHeads, 0.5f);
  std::vector<int32_t> selected(rows * count);
  for (int64_t i = 0; i < rows * count; ++i) selected[i] = static_cast<int32_t>(i % count * 2);
  const PagedPool entry_pool = {.data = pool_memory.data(),
                                .format = format,
                                .head_dim = kHeadDim,
                                .entries_per_page = kPageEntries,
                                .page_bytes = page_bytes};
  for (int64_t entry = 0; entry < 2 * count; ++entry) {
    EncodeEntry(entry_pool, {pages}, entry, ring.data() + entry % 100);
  }
  std::vector<BFloat16> out(rows * kHeads * kHeadDim);
  SparseAttentionParams params = {.q = {q.data(), rows, kHeads * kHeadDim},
                                  .heads = kHeads,
                                  .sinks = sinks,
                                  .scale = 0.0442f,
                                  .start = 100000,
                                  .chunk = {chunk.data(), rows, kHeadDim},
                                  .ring = {ring.data(), 136, kHeadDim},
                                  .out = {out.data(), rows, kHeads * kHeadDim}};
  if (count > 0) {
    params.ratio = kCsaRatio;
    params.pool = entry_pool;
    params.pages = {pages};
    params.selected = {selected.data(), rows, count};
  }
  for (auto _ : state) {
    SparseAttention({&params, 1}, Pool());
    benchmark::DoNotOptimize(out.data());
  }
  CountFlops(state, 4.0 * rows * kHeads * (128 + count) * kHeadDim);
}
BENCHMARK(BM_SparseAttention)
    ->Args({256, 0, 0})
    ->Args({256, 512, 0})
    ->Args({256, 512, 1})
    ->Args({1, 512, 0});

void BM_HcPre(benchmark::State& state) {
  const int64_t rows = state.range(0), d = 256;
  const auto streams = Random<BFloat16>(rows * kStreams * d);
  const auto fn_rows = Random<float>(kMixes * kStreams * d);
  const auto fn = PackedMatrix::FromRows(MatrixView<const float>(fn_rows.data(), kMixes, 4 * d));
  const std::vector<float> scale(3, 0.1f), base(kMixes, 0.2f);
  std::vector<BFloat16> x(rows * d);
  std::vector<float> post(rows * kStreams), comb(rows * 16);
  for (auto _ : state) {
    HcPre({.streams = {streams.data(), rows, kStreams * d},
           .fn = &fn,
           .scale = scale,
           .base = base,
           .x = {x.data(), rows, d},
           .post = {post.data(), rows, kStreams},
           .comb = {comb.data(), rows, 16}},
          Pool());
    benchmark::DoNotOptimize(x.data());
  }
  state.SetItemsProcessed(state.iterations() * rows);
}
BENCHMARK(BM_HcPre)->Arg(1)->Arg(256);

void BM_PoolCsaEntries(benchmark::State& state) {
  const int64_t entries = 64, width = 4 * kHeadDim;
  const auto chunk = Random<float>(entries * kCsaRatio * width);
  std::vector<float> ring(16 * width, 0.0f);
  std::vector<BFloat16> pooled(entries * kHeadDim);
  for (auto _ : state) {
    PoolEntries({.ratio = kCsaRatio,
                 .head_dim = kHeadDim,
                 .first_entry = 25,
                 .chunk_start = 100,
                 .chunk = {chunk.data(), entries * kCsaRatio, width},
                 .ring = {ring.data(), 16, static_cast<int>(width)},
                 .pooled = {pooled.data(), entries, kHeadDim}},
                Pool());
    benchmark::DoNotOptimize(pooled.data());
  }
  state.SetItemsProcessed(state.iterations() * entries);
}
BENCHMARK(BM_PoolCsaEntries);

void BM_QuantizeActivations(benchmark::State& state) {
  const int64_t rows = 256, n = 256;
  const auto x = Random<BFloat16>(rows * n);
  std::vector<BFloat16> y(rows * n);
  for (auto _ : state) {
    QuantizeActivations({x.data(), rows, n}, {y.data(), rows, n}, Pool());
    benchmark::DoNotOptimize(y.data());
  }
  state.SetItemsProcessed(state.iterations() * rows * n);
}
BENCHMARK(BM_QuantizeActivations);

void BM_Moe(benchmark::State& state) {
  constexpr int kExperts = 8, kChosen = 2;
  const int64_t rows = state.range(0), d = 256, f = 128;
  const auto x = Random<BFloat16>(rows * d);
  const auto gate_up = Random<BFloat16>(2 * f * d);
  const auto down = Random<BFloat16>(d * f);
  const ExpertWeights expert = {
      PackedMatrix::FromRows(MatrixView<const BFloat16>(gate_up.data(), 2 * f, d)),
      PackedMatrix::FromRows(MatrixView<const BFloat16>(down.data(), d, f))};
  const std::vector<ExpertWeights> routed(kExperts, expert);
  std::vector<int32_t> ids(rows * kChosen);
  for (int64_t row = 0; row < rows; ++row) {
    ids[row * kChosen] = static_cast<int32_t>(row % (kExperts - 1));
    ids[row * kChosen + 1] = kExperts - 1;
  }
  const std::vector<float> weights(rows * kChosen, 0.75f);
  std::vector<BFloat16> out(rows * d);
  for (auto _ : state) {
    Moe({.x = {x.data(), rows, d},
         .experts = {ids.data(), rows, kChosen},
         .weights = {weights.data(), rows, kChosen},
         .routed = routed,
         .shared = &expert,
         .out = {out.data(), rows, d}},
        Pool());
    benchmark::DoNotOptimize(out.data());
  }
  CountFlops(state, 2.0 * rows * (kChosen + 1) * 3 * f * d);
}
BENCHMARK(BM_Moe)->Arg(1)->Arg(256);

}  // namespace
}  // namespace baton::kernels
