#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include <sys/resource.h>

#include "benchmark/benchmark.h"
#include "engine/cache/geometry.h"
#include "engine/cache/storage.h"
#include "engine/model/checkpoint.h"
#include "engine/model/cpu_model.h"
#include "engine/model/weights.h"

// Prefill and decode of the checkpoint in models/, over bf16 caches, on all cores. `tok/s` counts
// tokens of all sequences; `rss_mb` is the process's peak so far.
//   model_bench --benchmark_filter=Prefill

namespace baton::engine {
namespace {

constexpr int64_t kChunk = 1024;
constexpr int kSlots = 16;

struct Rig {
  Rig()
      : checkpoint(*Checkpoint::Open(BATON_SOURCE_DIR "/models/needle-17m")),
        model(checkpoint.config(), *LoadWeights(checkpoint), {}),
        cache(*MakeCacheGeometry(checkpoint.config(), {.pages = 512, .slots = kSlots})) {}

  // Positions [begin, end) of the sequence in `slot`, which has the slot's share of the pages.
  void Prefill(int slot, int64_t begin, int64_t end) {
    const std::vector<int32_t> tokens = Tokens(end - begin);
    const std::vector<int32_t> pages = Pages(slot, end);
    for (int64_t done = begin; done < end; done += kChunk) {
      const int64_t rows = std::min(kChunk, end - done);
      const SequenceChunk chunk{.tokens = std::span(tokens).subspan(done - begin, rows),
                                .start = done,
                                .pages = pages,
                                .slot = slot,
                                .first_logits_row = static_cast<int>(rows - 1)};
      benchmark::DoNotOptimize(model.Forward({&chunk, 1}, cache).logits.data());
    }
  }

  std::vector<int32_t> Tokens(int64_t count) {
    std::vector<int32_t> tokens(count);
    for (int32_t& token : tokens) {
      token = static_cast<int32_t>(8 + random() % (checkpoint.config().vocab_size - 8));
    }
    return tokens;
  }

  // A long sequence in slot 0 may use them all.
  std::vector<int32_t> Pages(int slot, int64_t tokens) const {
    std::vector<int32_t> pages(cache.geometry().PagesFor(tokens));
    std::iota(pages.begin(), pages.end(), static_cast<int32_t>(slot * 512 / kSlots));
    return pages;
  }

  Checkpoint checkpoint;
  CpuModel model;
  CacheStorage cache;
  std::mt19937 random{1};
};

Rig& TheRig() {
  static Rig* const rig = new Rig;
  return *rig;
}

double PeakMegabytes() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

void Report(benchmark::State& state, int64_t tokens) {
  state.counters["tok/s"] =
      benchmark::Counter(static_cast<double>(tokens), benchmark::Counter::kIsRate);
  state.counters["rss_mb"] = PeakMegabytes();
}

void Prefill(benchmark::State& state) {
  Rig& rig = TheRig();
  int64_t tokens = 0;
  for (auto _ : state) {
    rig.Prefill(/*slot=*/0, 0, state.range(0));
    tokens += state.range(0);
  }
  Report(state, tokens);
}
BENCHMARK(Prefill)->ArgName("tokens")->Arg(512)->Arg(4509)->Arg(22000)->UseRealTime()->Unit(
    benchmark::kMillisecond);

// One token a step for every sequence, all at the same context length.
void Decode(benchmark::State& state) {
  Rig& rig = TheRig();
  const int64_t context = state.range(0);
  const auto sequences = static_cast<int>(state.range(1));
  std::vector<std::vector<int32_t>> pages;
  for (int slot = 0; slot < sequences; ++slot) {
    rig.Prefill(slot, 0, context);
    pages.push_back(rig.Pages(slot, context + 1));
  }
  const std::vector<int32_t> tokens = rig.Tokens(sequences);
  int64_t steps = 0;
  for (auto _ : state) {
    std::vector<SequenceChunk> batch;
    for (int slot = 0; slot < sequences; ++slot) {
      batch.push_back({.tokens = std::span(tokens).subspan(slot, 1),
                       .start = context,
                       .pages = pages[slot],
                       .slot = slot});
    }
    benchmark::DoNotOptimize(rig.model.Forward(batch, rig.cache).logits.data());
    ++steps;
  }
  Report(state, steps * sequences);
}
BENCHMARK(Decode)
    ->ArgNames({"context", "sequences"})
    ->Args({128, 1})
    ->Args({4509, 1})
    ->Args({4509, 8})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace baton::engine
