#include "engine/model/cpu_model.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "common/base/check.h"
#include "engine/model/block.h"
#include "engine/model/expert_ranks.h"
#include "engine/model/forward_context.h"
#include "engine/model/pass.h"
#include "engine/model/rope_config.h"
#include "engine/parallel/pass_gate.h"
#include "engine/sampler/logprobs.h"
#include "kernels/embedding.h"
#include "kernels/gemm.h"
#include "kernels/logprobs.h"
#include "kernels/mtp.h"
#include "kernels/rms_norm.h"
#include "kernels/window_kv.h"

namespace baton::engine {
namespace {

using kernels::MatrixView;

// What a call returns, owned.
struct Output {
  int64_t stream_width = 0;       // streams * hidden
  std::vector<BFloat16> streams;  // [rows, stream_width]
  std::vector<float> logits;      // [wanted rows so far, vocab_size]; sampled: of one pass
  std::vector<RowSampling> sampling;
  std::vector<int32_t> tokens;
  std::vector<TokenLogprobs> logprobs;

  MatrixView<BFloat16> Streams(int64_t first_row, int64_t rows) {
    return {streams.data() + first_row * stream_width, rows, stream_width};
  }
  // Leaves the wanted rows of each chunk.
  template <typename Chunk>
  void KeepStreams(std::span<const Chunk> batch) {
    auto kept = streams.begin();
    auto row = streams.begin();
    for (const Chunk& chunk : batch) {
      const auto end = row + RowsOf(chunk) * stream_width;
      kept = std::move(row + FirstStreamsRow(chunk) * stream_width, end, kept);
      row = end;
    }
    streams.erase(kept, streams.end());
  }
  // Rows with logits become tokens, if they are to.
  void Sample(int64_t vocab_size, Sampler& sampler) {
    if (sampling.empty()) return;
    const auto width = static_cast<size_t>(vocab_size);
    for (size_t row = 0; row * width < logits.size(); ++row) {
      const RowSampling& how = sampling[tokens.size()];
      const std::span<const float> values = std::span(logits).subspan(row * width, width);
      tokens.push_back(sampler.Sample(values, how));
      if (!how.top_logprobs) continue;
      std::vector<TokenLogprob> places(1 + static_cast<size_t>(*how.top_logprobs));
      kernels::Logprobs(values, tokens.back(), places);
      logprobs.push_back(LogprobsOfRow(places, *how.top_logprobs));
    }
    logits.clear();
  }
  ForwardResult result() const {
    return {.logits = logits, .tokens = tokens, .logprobs = logprobs, .streams = streams};
  }
};

}  // namespace

struct CpuModel::Impl {
  Impl(const ModelConfig& config, Weights weights, const ForwardOptions& options)
      : config(config),
        weights(std::move(weights)),
        options(options),
        pool(options.threads),
        rope(PlainRope(config)),
        compress_rope(CompressRope(config)),
        gate(options.group, [this](const Step& step) { Join(step); }) {
    if (options.group != nullptr) ranks.emplace(*options.group, this->config);
  }

  ForwardResult Forward(std::span<const SequenceChunk> batch, CacheStorage& cache,
                        const ForwardObserver& observer);
  ForwardResult ForwardMtp(std::span<const MtpChunk> batch, CacheStorage& cache);

  void RunTrunk(const Pass& pass, CacheStorage& cache, ForwardContext& context);
  void RunMtp(const MtpChunk& chunk, int64_t first_row, CacheStorage& cache);
  void EmbedMtp(const Pass& pass, MatrixView<const BFloat16> trunk_streams,
                MatrixView<BFloat16> streams);
  void AppendLogits(const HeadWeights& head, const Pass& pass,
                    MatrixView<const BFloat16> pass_streams, Output& output,
                    ForwardContext& context);

  // Context of one pass, with the rotations of its rows.
  ForwardContext ContextFor(const Pass& pass, const ForwardObserver& observer);
  // Waits for the group, if there is one, to come to a pass that has MoE layers.
  void Enter(PassKind kind, const Pass& pass);
  // The MoE layers of a pass of other ranks.
  void Join(const Step& step);
  void Begin(int64_t rows, int64_t logits_rows, std::vector<RowSampling> sampling,
             Output& output) const;
  MatrixView<const BFloat16> Embedding() const {
    return {weights.embedding.data(), config.vocab_size, config.hidden_size};
  }

  const ModelConfig config;
  const Weights weights;
  const ForwardOptions options;
  kernels::ThreadPool pool;
  const kernels::RopeTable rope;
  const kernels::RopeTable compress_rope;
  std::optional<ExpertRanks> ranks;
  PassGate gate;

  ForwardScratch scratch;
  const ForwardObserver no_observer;
  Sampler sampler;
  Output trunk_output;
  // In turn, because the streams of one draft step are the input of the next.
  Output mtp_output;
  Output previous_mtp_output;
};

void CpuModel::Impl::Begin(int64_t rows, int64_t logits_rows, std::vector<RowSampling> sampling,
                           Output& output) const {
  output.stream_width = int64_t{config.hc_mult} * config.hidden_size;
  output.streams.resize(rows * output.stream_width);
  output.logits.clear();
  output.logits.reserve(logits_rows * config.vocab_size);
  output.sampling = std::move(sampling);
  output.tokens.clear();
  output.logprobs.clear();
}

ForwardContext CpuModel::Impl::ContextFor(const Pass& pass, const ForwardObserver& observer) {
  const MatrixView<float> rope_rows = scratch.rope.Shape(pass.rows(), kernels::kRopeDim);
  const MatrixView<float> compress_rows =
      scratch.compress_rope.Shape(pass.rows(), kernels::kRopeDim);
  rope.Fill(pass.positions, rope_rows);
  compress_rope.Fill(pass.positions, compress_rows);
  return {.config = config,
          .numerics = options.numerics,
          .index_topk = options.TopkFor(config),
          .pool = pool,
          .compress_rope_table = compress_rope,
          .scratch = scratch,
          .ranks = ranks ? &*ranks : nullptr,
          .observer = observer,
          .rope = rope_rows,
          .compress_rope = compress_rows};
}

void CpuModel::Impl::Enter(PassKind kind, const Pass& pass) {
  const Step step = gate.Enter({.kind = kind, .rows = pass.rows()});
  if (ranks) ranks->Begin(step);
}

void CpuModel::Impl::Join(const Step& step) {
  ranks->Begin(step);
  if (step.kind == PassKind::kDraft) return ranks->Join(weights.mtp->layer.moe, pool);
  for (const LayerWeights& layer : weights.layers) ranks->Join(layer.moe, pool);
}

ForwardResult CpuModel::Impl::Forward(std::span<const SequenceChunk> batch, CacheStorage& cache,
                                      const ForwardObserver& observer) {
  const std::vector<Pass> passes = PlanPasses(batch, kMaxPassRows);
  int64_t rows = 0;
  int64_t logits_rows = 0;
  for (const Pass& pass : passes) {
    rows += pass.rows();
    logits_rows += static_cast<int64_t>(pass.logits_rows.size());
  }
  Begin(rows, logits_rows, SamplingOf(batch), trunk_output);
  for (const Pass& pass : passes) {
    Enter(PassKind::kTrunk, pass);
    ForwardContext context = ContextFor(pass, observer);
    RunTrunk(pass, cache, context);
    AppendLogits(weights.head, pass, trunk_output.Streams(pass.first_row, pass.rows()),
                 trunk_output, context);
  }
  trunk_output.KeepStreams(batch);
  return trunk_output.result();
}

void CpuModel::Impl::RunTrunk(const Pass& pass, CacheStorage& cache, ForwardContext& context) {
  const MatrixView<BFloat16> x = trunk_output.Streams(pass.first_row, pass.rows());
  kernels::Embed(Embedding(), pass.tokens, config.hc_mult, x);
  for (int layer = 0; layer < config.num_hidden_layers; ++layer) {
    RunBlock(weights.layers[layer], LayerCache::Trunk(cache, config, layer), pass, x, context);
    if (context.observer.on_layer) {
      context.observer.on_layer(layer, pass.first_row,
                                {x.data, static_cast<size_t>(x.rows * x.cols)});
    }
  }
  if (!config.has_mtp()) return;
  for (const Segment& segment : pass.segments) {
    kernels::WriteRows(x.Rows(segment.first_row, segment.rows), segment.start,
                       cache.Carry(segment.slot));
  }
}

ForwardResult CpuModel::Impl::ForwardMtp(std::span<const MtpChunk> batch, CacheStorage& cache) {
  BATON_CHECK(weights.mtp.has_value()) << "the model has no MTP block";
  int64_t rows = 0;
  int64_t logits_rows = 0;
  for (const MtpChunk& chunk : batch) {
    rows += RowsOf(chunk);
    if (chunk.wants_logits) logits_rows += RowsOf(chunk);
  }
  std::swap(mtp_output, previous_mtp_output);
  Begin(rows, logits_rows, SamplingOf(batch), mtp_output);
  int64_t first_row = 0;
  for (const MtpChunk& chunk : batch) {
    RunMtp(chunk, first_row, cache);
    first_row += RowsOf(chunk);
  }
  mtp_output.KeepStreams(batch);
  return mtp_output.result();
}

void CpuModel::Impl::RunMtp(const MtpChunk& chunk, int64_t first_row, CacheStorage& cache) {
  const MtpWeights& mtp = *weights.mtp;
  const LayerCache layer_cache = LayerCache::Mtp(cache);
  const int64_t width = int64_t{config.hc_mult} * config.hidden_size;
  std::vector<BFloat16> carried;
  if (chunk.streams.empty()) {
    const kernels::RowRing<BFloat16> carry = cache.Carry(chunk.slot);
    for (int64_t row = chunk.start; row < chunk.start + RowsOf(chunk); ++row) {
      carried.insert(carried.end(), carry.Row(row), carry.Row(row) + width);
    }
  }
  const std::span<const BFloat16> streams =
      chunk.streams.empty() ? std::span<const BFloat16>(carried) : chunk.streams;
  BATON_CHECK(std::ssize(streams) == RowsOf(chunk) * width) << streams.size();
  const MatrixView<const BFloat16> trunk_streams(streams.data(), RowsOf(chunk), width);
  for (const Pass& pass : PlanPasses({&chunk, 1}, kMaxPassRows)) {
    ForwardContext context = ContextFor(pass, no_observer);
    const MatrixView<BFloat16> x = mtp_output.Streams(first_row + pass.first_row, pass.rows());
    EmbedMtp(pass, trunk_streams.Rows(pass.first_row, pass.rows()), x);
    if (!chunk.wants_logits) {
      StoreBlockWindow(mtp.layer, layer_cache, pass, x, context);
      continue;
    }
    Enter(PassKind::kDraft, pass);
    RunBlock(mtp.layer, layer_cache, pass, x, context);
    AppendLogits(mtp.head, pass, x, mtp_output, context);
  }
}

// streams[t, j] = e_proj(norm(embedding of the next token)) + h_proj(norm(X[t, j])).
void CpuModel::Impl::EmbedMtp(const Pass& pass, MatrixView<const BFloat16> trunk_streams,
                              MatrixView<BFloat16> streams) {
  const MtpWeights& mtp = *weights.mtp;
  const int64_t hidden = config.hidden_size;
  const int64_t stream_rows = pass.rows() * config.hc_mult;
  const MatrixView<BFloat16> embedded = scratch.x.Shape(pass.rows(), hidden);
  kernels::Embed(Embedding(), pass.tokens, /*copies=*/1, embedded);
  const auto project = [&](MatrixView<const BFloat16> x, std::span<const float> norm,
                           const kernels::PackedMatrix& matrix, MatrixView<BFloat16> y) {
    const MatrixView<BFloat16> quantized = scratch.quantized.Shape(x.rows, hidden);
    kernels::RmsNorm({.x = x, .weight = norm, .eps = config.rms_norm_eps, .y_quantized = quantized},
                     pool);
    kernels::Gemm(quantized, matrix, y, pool);
  };
  const MatrixView<BFloat16> projected = scratch.embedding.Shape(pass.rows(), hidden);
  project(embedded, mtp.embedding_norm, mtp.e_proj, projected);
  project({trunk_streams.data, stream_rows, hidden}, mtp.streams_norm, mtp.h_proj,
          {streams.data, stream_rows, hidden});
  kernels::AddEmbeddingToStreams(projected, streams);
}

void CpuModel::Impl::AppendLogits(const HeadWeights& head, const Pass& pass,
                                  MatrixView<const BFloat16> pass_streams, Output& output,
                                  ForwardContext& context) {
  if (pass.logits_rows.empty()) return;
  const auto wanted = static_cast<int64_t>(pass.logits_rows.size());
  const MatrixView<BFloat16> rows = scratch.head_streams.Shape(wanted, pass_streams.cols);
  for (int64_t i = 0; i < wanted; ++i) {
    std::copy_n(pass_streams.Row(pass.logits_rows[i]), rows.cols, rows.Row(i));
  }
  const size_t done = output.logits.size();
  output.logits.resize(done + wanted * config.vocab_size);
  RunHead(head, weights.lm_head, rows, {output.logits.data() + done, wanted, config.vocab_size},
          context);
  output.Sample(config.vocab_size, sampler);
}

CpuModel::CpuModel(const ModelConfig& config, Weights weights, const ForwardOptions& options)
    : Model(config, options), impl_(std::make_unique<Impl>(config, std::move(weights), options)) {}

CpuModel::~CpuModel() = default;

ForwardResult CpuModel::Forward(std::span<const SequenceChunk> batch, CacheStorage& cache,
                                const ForwardObserver& observer) {
  return impl_->Forward(batch, cache, observer);
}

ForwardResult CpuModel::ForwardMtp(std::span<const MtpChunk> batch, CacheStorage& cache) {
  return impl_->ForwardMtp(batch, cache);
}

void CpuModel::JoinPass() { impl_->gate.Join(); }

}  // namespace baton::engine
