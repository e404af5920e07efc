#include "engine/recall/probe.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <numeric>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "engine/cache/page_list.h"
#include "engine/cache/storage.h"
#include "engine/model/checkpoint.h"
#include "engine/model/problems.h"
#include "engine/model/tensor_reader.h"
#include "engine/recall/row_capture.h"

namespace baton::engine {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kSlot = 0;

// Room for one sequence: a cache, and the sequence's pages in it. They are scattered, and never
// cleared, so that what an earlier prompt left behind is there to be read by mistake.
struct Home {
  static absl::StatusOr<std::unique_ptr<Home>> Create(Backend& backend, const ModelConfig& config,
                                                      CacheOptions options) {
    options.slots = 1;
    BATON_ASSIGN_OR_RETURN(const CacheGeometry geometry, MakeCacheGeometry(config, options));
    BATON_ASSIGN_OR_RETURN(std::unique_ptr<CacheStorage> cache, backend.NewCache(geometry));
    std::vector<int32_t> ids(options.pages);
    std::iota(ids.begin(), ids.end(), 0);
    std::shuffle(ids.begin(), ids.end(), std::mt19937(1));
    auto home = std::make_unique<Home>(std::move(cache), options.pages);
    home->pages.Append(ids);
    home->records = backend.NewRecords(*home->cache, home->pages, kSlot);
    return home;
  }
  Home(std::unique_ptr<CacheStorage> storage, int64_t capacity)
      : cache(std::move(storage)), pages(capacity) {}

  const std::unique_ptr<CacheStorage> cache;
  PageList pages;
  std::unique_ptr<SequenceRecords> records;
};

// Leaves in the pages of `tokens` what lies in the first of them, as a cache in use has old
// sequences in the pages that it gives out. In main memory only.
void Soil(const Home& home, int64_t tokens) {
  const CacheGeometry& geometry = home.cache->geometry();
  const std::span<const int32_t> pages = home.pages.ids().first(geometry.PagesFor(tokens));
  const auto soil = [&](const kernels::PagedPool& pool) {
    const std::byte* source = pool.data + pages[0] * pool.page_bytes;
    for (const int32_t page : pages.subspan(1)) {
      std::memcpy(pool.data + page * pool.page_bytes, source, pool.page_bytes);
    }
  };
  for (int csa = 0; csa < geometry.csa_layers; ++csa) {
    soil(home.cache->CsaKv(csa));
    soil(home.cache->IndexKeys(csa));
  }
  for (int hca = 0; hca < geometry.hca_layers; ++hca) soil(home.cache->HcaKv(hca));
}

int32_t Argmax(std::span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

std::vector<std::byte> GatherRange(const Home& home, const RecordRange& range, uint32_t bytes) {
  std::vector<std::byte> records(static_cast<size_t>(range.indices.size()) * bytes);
  home.records->Gather(range, records);
  return records;
}

// Moves what a sequence of `tokens` computed tokens needs, and looks at what has arrived.
std::vector<StreamReport> HandOver(const Home& from, Home& to, int64_t tokens) {
  std::vector<StreamReport> reports;
  for (const StreamLayout& stream : from.cache->geometry().layout().streams) {
    // No drafts here, hence no rows of the MTP block.
    if (stream.stream == CacheStream::kMtpWindowKv) continue;
    StreamReport& report = reports.emplace_back();
    report.stream = stream.stream;
    const IndexRange live = LiveRecords(stream.stream, tokens);
    for (uint32_t layer = 0; layer < stream.layers && live.size() > 0; ++layer) {
      const RecordRange range{stream.stream, layer, live};
      const std::vector<std::byte> sent = GatherRange(from, range, stream.record_bytes);
      to.records->Scatter(range, sent);
      const std::vector<std::byte> arrived = GatherRange(to, range, stream.record_bytes);
      report.records += live.size();
      for (size_t at = 0; at < sent.size(); at += stream.record_bytes) {
        report.different += std::memcmp(&sent[at], &arrived[at], stream.record_bytes) != 0 ? 1 : 0;
      }
    }
  }
  return reports;
}

}  // namespace

struct Probe::Impl {
  absl::Status Check(const ProbeRequest& request) const;
  absl::StatusOr<ProbeAnswer> Ask(const ProbeRequest& request);
  ForwardResult Compute(Home& home, std::span<const int32_t> tokens, int64_t start,
                        const ForwardObserver& observer);
  void Prefill(Home& home, std::span<const int32_t> prompt, const ForwardObserver& observer);
  std::map<int, ReferenceIndex> NewIndexes() const;

  ProbeOptions options;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Model> model;
  std::map<int, std::vector<float>> index_norms;  // by CSA layer
  std::unique_ptr<Home> home;
  std::unique_ptr<Home> decode_home;  // with a hand-off
};

absl::Status Probe::Impl::Check(const ProbeRequest& request) const {
  const auto refuse = [](auto&&... parts) {
    return absl::InvalidArgumentError(absl::StrCat(parts...));
  };
  const int64_t tokens = std::ssize(request.prompt);
  const int64_t room = options.engine.cache.pages * options.engine.cache.page_tokens;
  if (tokens == 0) return refuse("the prompt is empty");
  if (request.max_tokens < 1) return refuse("max_tokens is ", request.max_tokens);
  if (tokens + request.max_tokens > room) {
    return refuse("the prompt has ", tokens, " tokens and the answer may have ", request.max_tokens,
                  ": the cache has pages for ", room);
  }
  const int vocabulary = model->config().vocab_size;
  const auto unknown = std::find_if(request.prompt.begin(), request.prompt.end(),
                                    [&](int32_t id) { return id < 0 || id >= vocabulary; });
  if (unknown != request.prompt.end()) {
    return refuse("token ", *unknown, " is outside the vocabulary of ", vocabulary);
  }
  const IndexRange& needle = request.needle;
  if (needle.begin < 0 || needle.end < needle.begin || needle.end > tokens) {
    return refuse("the needle is at [", needle.begin, ", ", needle.end, ") of ", tokens, " tokens");
  }
  if (request.explain && options.engine.device != "cpu") {
    return refuse("selections are explained on the CPU, not on ", options.engine.device);
  }
  return absl::OkStatus();
}

ForwardResult Probe::Impl::Compute(Home& where, std::span<const int32_t> tokens, int64_t start,
                                   const ForwardObserver& observer) {
  const SequenceChunk chunk{.tokens = tokens,
                            .start = start,
                            .pages = where.pages.ids(),
                            .slot = kSlot,
                            .first_logits_row = static_cast<int>(tokens.size()) - 1,
                            .first_streams_row = static_cast<int>(tokens.size())};
  return model->Forward({&chunk, 1}, *where.cache, observer);
}

void Probe::Impl::Prefill(Home& where, std::span<const int32_t> prompt,
                          const ForwardObserver& observer) {
  for (int64_t done = 0; done < std::ssize(prompt); done += options.chunk_tokens) {
    const int64_t rows = std::min(options.chunk_tokens, std::ssize(prompt) - done);
    Compute(where, prompt.subspan(done, rows), done, observer);
  }
}

std::map<int, ReferenceIndex> Probe::Impl::NewIndexes() const {
  std::map<int, ReferenceIndex> indexes;
  for (const auto& [layer, norm] : index_norms) {
    indexes.try_emplace(layer, model->config(), model->options().numerics, norm);
  }
  return indexes;
}

absl::StatusOr<ProbeAnswer> Probe::Impl::Ask(const ProbeRequest& request) {
  BATON_RETURN_IF_ERROR(Check(request));
  const std::span<const int32_t> prompt(request.prompt);
  const int64_t before_last = std::ssize(prompt) - 1;
  RowCapture capture(NewIndexes());
  const ForwardObserver all = request.explain ? capture.WholePrompt() : ForwardObserver{};
  const ForwardObserver single = request.explain ? capture.SingleRow() : ForwardObserver{};
  ProbeAnswer answer;

  const auto begin = Clock::now();
  Prefill(*home, prompt.first(before_last), all);
  ForwardResult forward = Compute(*home, prompt.last(1), before_last, single);
  answer.prefill_seconds = std::chrono::duration<double>(Clock::now() - begin).count();

  Home* where = home.get();
  std::vector<int32_t> generated = {Argmax(forward.logits)};
  const auto report = [&](int64_t position) {
    if (!request.explain) return;
    answer.rows.push_back({.position = position,
                           .token = generated.back(),
                           .layers = capture.Report(position, request.needle)});
  };
  report(before_last);
  if (decode_home) {
    if (options.engine.device == "cpu") Soil(*decode_home, std::ssize(prompt));
    answer.handoff = HandOver(*home, *decode_home, std::ssize(prompt));
    where = decode_home.get();
  }
  const int32_t eos = model->config().eos_token_id;
  while (generated.back() != eos && std::ssize(generated) < request.max_tokens) {
    const int64_t position = before_last + std::ssize(generated);
    forward = Compute(*where, std::span(generated).last(1), position, single);
    generated.push_back(Argmax(forward.logits));
    report(position);
  }
  const CacheGeometry& geometry = where->cache->geometry();
  answer.cache_bytes =
      geometry.PagesFor(before_last + std::ssize(generated)) * geometry.page_bytes() +
      geometry.slot_bytes();
  if (generated.back() == eos) generated.pop_back();
  answer.tokens = std::move(generated);
  return answer;
}

absl::StatusOr<std::unique_ptr<Probe>> Probe::Create(const ProbeOptions& options) {
  EngineOptions engine = options.engine;
  if (engine.dummy_weights || engine.parallel.size != 1) {
    return absl::InvalidArgumentError("what is probed is a checkpoint with weights, on one device");
  }
  // One sequence has no use for a whole device.
  if (engine.cache.pages == 0) engine.cache.pages = CacheOptions{}.pages;
  BATON_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open(engine.model_dir));
  const ModelConfig& config = checkpoint.config();
  auto impl = std::make_unique<Impl>();
  impl->options = options;
  impl->options.engine = engine;
  BATON_ASSIGN_OR_RETURN(impl->backend, MakeBackend(engine.device));
  BATON_ASSIGN_OR_RETURN(impl->model, impl->backend->LoadModel(checkpoint, engine.forward));
  Problems problems;
  for (int layer = 0; layer < config.num_hidden_layers; ++layer) {
    if (config.layer_kind(layer) != LayerKind::kCsa) continue;
    const TensorReader tensors(checkpoint, absl::StrCat("layers.", layer, "."), problems);
    impl->index_norms[layer] = tensors.Vector("attn.indexer.compressor.norm.weight");
  }
  BATON_ASSIGN_OR_RETURN(impl->home, Home::Create(*impl->backend, config, engine.cache));
  if (options.handoff) {
    CacheOptions other = engine.cache;
    other.page_tokens *= 2;
    other.pages = (other.pages + 1) / 2;
    BATON_ASSIGN_OR_RETURN(impl->decode_home, Home::Create(*impl->backend, config, other));
    // For Soil: a page of a sequence that makes no sense.
    std::vector<int32_t> earlier(other.page_tokens);
    std::mt19937 random(2);
    for (int32_t& id : earlier) id = static_cast<int32_t>(random() % config.vocab_size);
    impl->Prefill(*impl->decode_home, earlier, ForwardObserver{});
  }
  return std::unique_ptr<Probe>(new Probe(std::move(impl)));
}

Probe::Probe(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Probe::~Probe() = default;

absl::StatusOr<ProbeAnswer> Probe::Ask(const ProbeRequest& request) { return impl_->Ask(request); }

const ModelConfig& Probe::model_config() const { return impl_->model->config(); }

}  // namespace baton::engine
