#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/config.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "engine/cache/storage.h"
#include "engine/model/backend.h"
#include "engine/model/checkpoint.h"
#include "engine/parallel/expert_group.h"
#include "kernels/runtime/device.h"
#include "kernels/runtime/stream.h"
#include "tests/bench/cuda/ceilings.h"
#include "tests/bench/cuda/kernel_trace.h"
#include "tests/bench/cuda/memory_watch.h"
#include "tests/bench/cuda/model_cost.h"

// Prefill and decode of a shape with dummy weights on a GPU, beside what arithmetic and bandwidth
// allow, and where the time goes kernel by kernel. The cache holds random values: what a row costs
// does not depend on how it came to be.

namespace baton::engine {
namespace {

using kernels::cuda::KernelSpan;
using kernels::cuda::MemoryUse;
using Seconds = std::chrono::duration<double>;

struct BenchConfig {
  std::string model_dir = BATON_SOURCE_DIR "/models/shapes/flash";
  int layers = 6;
  std::vector<std::string> prefill = {"8192", "65536"};
  std::vector<std::string> batches = {"1", "16", "64", "256"};
  std::vector<std::string> contexts = {"4096", "32768", "131072"};
  std::vector<std::string> memory{};
  int chunk = 8192;
  int steps = 16;
  double peak = 790;       // TFLOP/s of a BF16 product
  double bandwidth = 4.5;  // TB/s of reading
  bool kernels = true;
  bool deterministic = false;
  // Several ranks do the same at the same time, each with so many sequences.
  int ranks = 1;
  int rank = 0;
  std::string address{};
};

void Bind(BenchConfig& config, ConfigParser& parser) {
  parser.Add("model-dir", &config.model_dir, "whose config.json gives the shape");
  parser.Add("layers", &config.layers, "of the trunk; 0: all").Range(0, 1024);
  parser.Add("prefill", &config.prefill, "prompt lengths").Unit("tokens");
  parser.Add("batches", &config.batches, "sequences of a decode step");
  parser.Add("contexts", &config.contexts, "their lengths").Unit("tokens");
  parser.Add("memory", &config.memory, "contexts at whose end a step's memory is watched")
      .Unit("tokens");
  parser.Add("chunk", &config.chunk, "prompt tokens a call").Range(1, 1 << 20).Unit("tokens");
  parser.Add("steps", &config.steps, "decode steps timed").Range(1, 10000);
  parser.Add("peak", &config.peak, "a BF16 product's, measured").Range(1, 10000).Unit("TFLOP/s");
  parser.Add("bandwidth", &config.bandwidth, "of reading, measured").Range(0.1, 100).Unit("TB/s");
  parser.Add("kernels", &config.kernels, "trace kernels too");
  parser.Add("enable-deterministic-inference", &config.deterministic, "as workers have it");
  parser.Add("expert-parallel-size", &config.ranks, "ranks, one process each").Range(1, 64);
  parser.Add("expert-parallel-rank", &config.rank, "which of them this is").Range(0, 63);
  parser.Add("expert-parallel-address", &config.address, "host:port where rank 0 waits");
}

std::vector<int64_t> Numbers(const std::vector<std::string>& texts) {
  std::vector<int64_t> numbers;
  for (const std::string& text : texts) {
    int64_t number = 0;
    BATON_CHECK(absl::SimpleAtoi(text, &number) && number > 0) << text << " is no positive number";
    numbers.push_back(number);
  }
  return numbers;
}

double MiB(int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

double SecondsOf(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return Seconds(std::chrono::steady_clock::now() - begin).count();
}

// Sums by name, the largest first.
void PrintKernels(const std::vector<KernelSpan>& spans) {
  struct Sum {
    double microseconds = 0;
    int count = 0;
  };
  std::map<std::string, Sum> sums;
  double total = 0;
  for (const KernelSpan& span : spans) {
    Sum& sum = sums[span.name];
    sum.microseconds += span.end - span.begin;
    ++sum.count;
    total += span.end - span.begin;
  }
  std::vector<std::pair<std::string, Sum>> sorted(sums.begin(), sums.end());
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    return a.second.microseconds > b.second.microseconds;
  });
  for (const auto& [name, sum] : sorted) {
    const double share = 100 * sum.microseconds / total;
    if (share < 0.5) continue;
    std::printf("    %-44.44s %6d x %9.1f us = %10.1f us %5.1f %%\n", name.c_str(), sum.count,
                sum.microseconds / sum.count, sum.microseconds, share);
  }
}

// A step's kernels by layer: a layer begins with the first of its two collapses of the streams.
std::vector<std::vector<KernelSpan>> ByLayer(const std::vector<KernelSpan>& spans, int layers) {
  std::vector<std::vector<KernelSpan>> parts(1);  // the first is what comes before the layers
  int collapses = 0;
  for (const KernelSpan& span : spans) {
    if (span.name == "HcProjectKernel" && collapses++ % 2 == 0 && std::ssize(parts) <= layers + 1) {
      parts.emplace_back();
    }
    parts.back().push_back(span);
  }
  return parts;  // the last is the head
}

class ModelBench {
 public:
  ModelBench(const BenchConfig& options, const Checkpoint& checkpoint, Backend& backend,
             ExpertGroup* group)
      : options_(options), config_(checkpoint.config()), backend_(backend) {
    const double seconds = SecondsOf([&] {
      model_ =
          *backend.LoadModel(checkpoint, {.deterministic = options.deterministic, .group = group});
    });
    std::printf("%d layers loaded in %.1f s\n", config_.num_hidden_layers, seconds);
  }

  // Of a chunk and of decoding steps at the end of each context, one sequence in a cache for the
  // longest.
  void Memory(const std::vector<int64_t>& contexts);
  void Prefill(int64_t tokens);
  void Decode(int64_t batch, int64_t context);

 private:
  // Null, with a line that says so, where the device has no room.
  std::unique_ptr<CacheStorage> NewCache(int64_t sequences, int64_t tokens);
  std::vector<int32_t> Tokens(int64_t count);
  // Tokens [begin, end) of a sequence on the first pages; logits of the last.
  void RunChunk(std::span<const int32_t> tokens, int64_t begin, CacheStorage& cache);
  void PrintLayers(const std::vector<KernelSpan>& spans, const CacheGeometry& geometry,
                   int64_t batch, int64_t context) const;

  const BenchConfig& options_;
  const ModelConfig config_;
  Backend& backend_;
  std::unique_ptr<Model> model_;
  std::mt19937 random_{1};
};

std::unique_ptr<CacheStorage> ModelBench::NewCache(int64_t sequences, int64_t tokens) {
  CacheOptions cache{.slots = static_cast<int>(sequences)};
  cache.pages = sequences * ((tokens + cache.page_tokens - 1) / cache.page_tokens);
  const CacheGeometry geometry = *MakeCacheGeometry(config_, cache);
  absl::StatusOr<std::unique_ptr<CacheStorage>> storage = backend_.NewCache(geometry);
  if (!storage.ok()) {
    std::printf("skipped: %s\n", std::string(storage.status().message()).c_str());
    return nullptr;
  }
  const kernels::Stream stream;
  const auto fill = [&](void* memory, int64_t bytes) {
    kernels::cuda::FillRandom(memory, bytes / 16 * 16, 1, stream.get());
  };
  fill((*storage)->CsaKv(0).data, cache.pages * geometry.page_bytes());
  fill((*storage)->Window(0, 0).data, cache.slots * geometry.slot_bytes());
  stream.Synchronize();
  return *std::move(storage);
}

std::vector<int32_t> ModelBench::Tokens(int64_t count) {
  std::vector<int32_t> tokens(count);
  for (int32_t& token : tokens) token = static_cast<int32_t>(random_() % config_.vocab_size);
  return tokens;
}

void ModelBench::RunChunk(std::span<const int32_t> tokens, int64_t begin, CacheStorage& cache) {
  std::vector<int32_t> pages(cache.geometry().options.pages);
  std::iota(pages.begin(), pages.end(), 0);
  const auto rows = static_cast<int>(tokens.size());
  const SequenceChunk chunk{.tokens = tokens,
                            .start = begin,
                            .pages = pages,
                            .first_logits_row = rows - 1,
                            .first_streams_row = rows};
  model_->Forward({&chunk, 1}, cache);
}

void ModelBench::Memory(const std::vector<int64_t>& contexts) {
  if (contexts.empty()) return;
  const int64_t loaded = kernels::cuda::MemoryInUse();
  const std::unique_ptr<CacheStorage> cache =
      NewCache(1, *std::max_element(contexts.begin(), contexts.end()));
  if (cache == nullptr) return;
  std::printf("memory before the cache %9.1f MiB, with it %9.1f MiB\n", MiB(loaded),
              MiB(kernels::cuda::MemoryInUse()));
  for (const int64_t context : contexts) {
    const auto watch = [&](const char* what, int64_t rows) {
      const std::vector<int32_t> tokens = Tokens(rows);
      const auto run = [&] { RunChunk(tokens, context - rows, *cache); };
      const MemoryUse use = kernels::cuda::WatchMemory(run);
      std::printf(
          "memory at context %7ld, %-6s of %4ld rows: before %9.1f, most %9.1f, after %9.1f, pools "
          "%5.1f MiB; then %8.2f ms\n",
          context, what, rows, MiB(use.before), MiB(use.most), MiB(use.after), MiB(use.pools),
          1e3 * SecondsOf(run));
    };
    watch("prompt", std::min<int64_t>(options_.chunk, context));
    watch("step", 1);  // captured in the first run
  }
}

void ModelBench::Prefill(int64_t total) {
  const std::unique_ptr<CacheStorage> cache = NewCache(1, total);
  if (cache == nullptr) return;
  const std::vector<int32_t> tokens = Tokens(total);
  const auto run = [&](int64_t begin) {
    const int64_t rows = std::min<int64_t>(options_.chunk, total - begin);
    RunChunk(std::span(tokens).subspan(begin, rows), begin, *cache);
  };
  run(0);  // once before, unmeasured
  const double seconds = SecondsOf([&] {
    for (int64_t begin = 0; begin < total; begin += options_.chunk) run(begin);
  });
  double flops = 0;
  for (int64_t position = 0; position < total; ++position) flops += FlopsOfRow(config_, position);
  const double rate = 1e-12 * flops / seconds;
  std::printf("prefill %7ld tokens: %8.1f ms, %9.0f tokens/s, %6.1f TFLOP/s, %5.1f %% of peak\n",
              total, 1e3 * seconds, static_cast<double>(total) / seconds, rate,
              100 * rate / options_.peak);
  if (!options_.kernels) return;
  std::printf("  kernels of the last chunk:\n");
  PrintKernels(
      kernels::cuda::TraceKernels([&] { run((total - 1) / options_.chunk * options_.chunk); }));
}

void ModelBench::Decode(int64_t batch, int64_t context) {
  const std::unique_ptr<CacheStorage> cache = NewCache(batch, context);
  if (cache == nullptr) return;
  const CacheGeometry& geometry = cache->geometry();
  const int64_t per_sequence = geometry.options.pages / batch;
  std::vector<int32_t> pages(geometry.options.pages);
  std::iota(pages.begin(), pages.end(), 0);
  std::shuffle(pages.begin(), pages.end(), random_);
  const std::vector<int32_t> tokens = Tokens(batch);
  // Of eight steps one closes an entry of a 4:1 layer twice, one of sixteen steps of 128:1 once.
  const auto run = [&](int64_t back) {
    std::vector<SequenceChunk> chunks;
    for (int64_t s = 0; s < batch; ++s) {
      chunks.push_back({.tokens = std::span(tokens).subspan(s, 1),
                        .start = context - 1 - back,
                        .pages = std::span(pages).subspan(s * per_sequence, per_sequence),
                        .slot = static_cast<int>(s),
                        .first_streams_row = 1});
    }
    model_->Forward(chunks, *cache);
  };
  for (const int64_t back : {2, 1, 0}) run(back);
  std::vector<double> times;
  for (int step = 0; step < options_.steps; ++step) {
    times.push_back(SecondsOf([&] { run(step % 8); }));
  }
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  double bytes = BytesOfHead(config_);
  for (int layer = 0; layer < config_.num_hidden_layers; ++layer) {
    bytes += BytesOfLayer(geometry, config_, config_.layer_kind(layer), batch, context).total();
  }
  const double seconds = times[times.size() / 2];
  const double bound = bytes / (1e12 * options_.bandwidth);
  std::printf("decode batch %3ld context %6ld: step %8.1f us, bound %7.1f us, %5.1f %%\n", batch,
              context, 1e6 * seconds, 1e6 * bound, 100 * bound / seconds);
  if (options_.kernels) {
    PrintLayers(kernels::cuda::TraceKernels([&] { run(0); }), geometry, batch, context);
  }
}

// Kernel times of each kind of layer beside its bound, and of the smallest and largest batch all
// kernels of one layer in their order.
void ModelBench::PrintLayers(const std::vector<KernelSpan>& spans, const CacheGeometry& geometry,
                             int64_t batch, int64_t context) const {
  const std::vector<std::vector<KernelSpan>> parts = ByLayer(spans, config_.num_hidden_layers);
  struct Named {
    const char* name;
    LayerKind kind;
  };
  for (const auto& [name, kind] : {Named{"CSA", LayerKind::kCsa}, Named{"HCA", LayerKind::kHca},
                                   Named{"window", LayerKind::kWindow}}) {
    int last = -1;
    for (int layer = 0; layer < config_.num_hidden_layers; ++layer) {
      if (config_.layer_kind(layer) == kind && layer + 1 < std::ssize(parts)) last = layer;
    }
    if (last < 0) continue;
    const std::vector<KernelSpan>& kernels = parts[last + 1];
    double busy = 0;
    for (const KernelSpan& span : kernels) busy += span.end - span.begin;
    const LayerBytes bytes = BytesOfLayer(geometry, config_, kind, batch, context);
    const double bound = bytes.total() / (1e6 * options_.bandwidth);
    std::printf(
        "  %-6s layer: %3zu kernels, busy %8.1f us, from begin to end %8.1f us, bound %7.1f us "
        "(%.1f MB of weights, %.1f MB of cache), %5.1f %%\n",
        name, kernels.size(), busy, kernels.back().end - kernels.front().begin, bound,
        1e-6 * bytes.weights, 1e-6 * bytes.cache, 100 * bound / busy);
    if (kind == LayerKind::kCsa) {
      for (const KernelSpan& span : kernels) {
        std::printf("      %-44.44s %8.1f us at %8.1f us\n", span.name.c_str(),
                    span.end - span.begin, span.begin - kernels.front().begin);
      }
    }
  }
  double head = 0;
  for (const KernelSpan& span : parts.back()) head += span.end - span.begin;
  std::printf("  head: busy %8.1f us\n", head);
}

absl::StatusOr<int> Run(int argc, char** argv) {
  BenchConfig options;
  ConfigParser parser("cuda_model_bench", "Prefill and decode of a shape on a GPU.");
  Bind(options, parser);
  BATON_ASSIGN_OR_RETURN(const ParseOutcome outcome, parser.Parse(argc, argv));
  if (outcome == ParseOutcome::kExit) return 0;
  BATON_RETURN_IF_ERROR(InitLogging("bench", "info"));  // on stdout are the figures alone
  BATON_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend, MakeBackend("cuda"));
  BATON_ASSIGN_OR_RETURN(const Checkpoint checkpoint,
                         Checkpoint::OpenDummy(options.model_dir, options.layers));
  std::printf("%s, %s\n", kernels::CurrentDevice().name.c_str(), options.model_dir.c_str());
  std::unique_ptr<ExpertGroup> group;
  if (options.ranks > 1) {
    BATON_ASSIGN_OR_RETURN(
        group, ExpertGroup::Join({.size = options.ranks,
                                  .rank = options.rank,
                                  .address = options.address,
                                  .max_positions = checkpoint.config().max_position_embeddings}));
  }
  ModelBench bench(options, checkpoint, *backend, group.get());
  bench.Memory(Numbers(options.memory));
  for (const int64_t tokens : Numbers(options.prefill)) bench.Prefill(tokens);
  for (const int64_t batch : Numbers(options.batches)) {
    for (const int64_t context : Numbers(options.contexts)) bench.Decode(batch, context);
  }
  if (group != nullptr) group->Leave(std::chrono::minutes(1));
  return 0;
}

}  // namespace
}  // namespace baton::engine

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const absl::StatusOr<int> code = baton::engine::Run(argc, argv);
  if (code.ok()) return *code;
  std::cerr << code.status() << "\n";
  return 1;
}
