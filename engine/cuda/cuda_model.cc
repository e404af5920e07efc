#include "engine/cuda/cuda_model.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "engine/cuda/block.h"
#include "engine/model/pass.h"
#include "engine/model/rope_config.h"
#include "kernels/cuda/embedding.h"
#include "kernels/cuda/gemm_lt.h"
#include "kernels/cuda/mtp.h"
#include "kernels/cuda/rms_norm.h"
#include "kernels/cuda/window_kv.h"
#include "kernels/runtime/device.h"

namespace baton::engine::cuda {
namespace {

using kernels::DeviceBuffer;
using kernels::MatrixView;
using kernels::PinnedBuffer;

// No pass is larger: what calls bring at most, but room for any step that is captured.
int64_t PassRows(const ForwardOptions& options) {
  if (options.max_rows == 0) return kMaxPassRows;
  return std::clamp(kernels::cuda::LtMatmul::RoundUpRows(options.max_rows), kMaxStepRows,
                    kMaxPassRows);
}

int64_t Entries(const ModelConfig& config, int ratio) {
  return config.max_position_embeddings / ratio;
}

kernels::cuda::RopeFrequencies Frequencies(const kernels::RopeConfig& config) {
  return kernels::cuda::FrequenciesOf(kernels::RopeTable(config));
}

// Calls visit(chunk, first, end) for the rows of each chunk that lie in the pass; both are rows of
// the chunk.
template <typename Chunk, typename Visit>
void ForEachChunkOf(const Pass& pass, std::span<const Chunk> batch, Visit visit) {
  int64_t begin = 0;  // of the chunk, in rows of the batch
  for (const Chunk& chunk : batch) {
    const int64_t rows = RowsOf(chunk);
    const int64_t first = std::clamp<int64_t>(pass.first_row - begin, 0, rows);
    const int64_t end = std::clamp<int64_t>(pass.first_row + pass.rows() - begin, 0, rows);
    if (first < end) visit(chunk, first, end);
    begin += rows;
  }
}

// The carry rings of all slots.
template <typename T>
kernels::cuda::SlotRings<T> CarryOf(const CacheStorage& cache) {
  const kernels::RowRing<BFloat16> first = cache.Carry(0);
  return {.data = first.data,
          .rows = first.rows,
          .width = first.width,
          .slot_stride = cache.geometry().slot_bytes() / int64_t{sizeof(BFloat16)}};
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaModel>> CudaModel::Load(const Checkpoint& checkpoint,
                                                           const ForwardOptions& options) {
  std::unique_ptr<ExpertRanks> ranks;
  ExpertShare share;
  if (options.group != nullptr) {
    share = options.group->share();
    BATON_ASSIGN_OR_RETURN(ranks, ExpertRanks::Connect(*options.group, checkpoint.config()));
  }
  BATON_ASSIGN_OR_RETURN(
      Weights weights,
      LoadWeights(checkpoint, {.pass = PassRows(options), .logits = kMaxLogitsRows}, share));
  BATON_ASSIGN_OR_RETURN(Memory memory, Allocate(checkpoint.config(), options));
  return std::unique_ptr<CudaModel>(new CudaModel(checkpoint.config(), options, std::move(weights),
                                                  std::move(memory), std::move(ranks)));
}

int64_t CudaModel::TransientBytes(const ModelConfig& config, const ForwardOptions& options) {
  const int64_t rows = PassRows(options);
  return Scratch::Plan(config, options.TopkFor(config), rows).bytes() + PassArrays::Bytes(rows) +
         DeviceSampler::Bytes(kMaxLogitsRows);
}

absl::StatusOr<CudaModel::Memory> CudaModel::Allocate(const ModelConfig& config,
                                                      const ForwardOptions& options) {
  const int64_t rows = PassRows(options);
  constexpr int64_t kRopeBytes = kernels::kRopeDim * int64_t{sizeof(float)};
  auto scratch =
      DeviceBuffer::Allocate(Scratch::Plan(config, options.TopkFor(config), rows).bytes());
  auto csa_rope = DeviceBuffer::Allocate(Entries(config, ModelConfig::kCsaRatio) * kRopeBytes);
  auto hca_rope = DeviceBuffer::Allocate(Entries(config, ModelConfig::kHcaRatio) * kRopeBytes);
  auto arrays = DeviceBuffer::Allocate(PassArrays::Bytes(rows));
  auto staging = PinnedBuffer::Allocate(PassArrays::Bytes(rows));
  auto sampling = DeviceBuffer::Allocate(DeviceSampler::Bytes(kMaxLogitsRows));
  auto sampling_staging = PinnedBuffer::Allocate(DeviceSampler::Bytes(kMaxLogitsRows));
  if (!scratch || !csa_rope || !hca_rope || !arrays || !staging || !sampling || !sampling_staging) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no room for the ", TransientBytes(config, options) >> 20,
                     " MiB of intermediates beside the weights in the memory of ",
                     kernels::CurrentDevice().name));
  }
  spdlog::info("intermediates of {} rows: {} MiB", rows, TransientBytes(config, options) >> 20);
  return Memory{.scratch = *std::move(scratch),
                .csa_rope = *std::move(csa_rope),
                .hca_rope = *std::move(hca_rope),
                .arrays = *std::move(arrays),
                .arrays_staging = *std::move(staging),
                .sampling = *std::move(sampling),
                .sampling_staging = *std::move(sampling_staging)};
}

CudaModel::CudaModel(const ModelConfig& config, const ForwardOptions& options, Weights weights,
                     Memory memory, std::unique_ptr<ExpertRanks> ranks)
    : Model(config, options),
      weights_(std::move(weights)),
      memory_(std::move(memory)),
      ranks_(std::move(ranks)),
      scratch_(config, index_topk(), PassRows(options), memory_.scratch.data()),
      rope_(Frequencies(PlainRope(config))),
      compress_rope_(Frequencies(CompressRope(config))),
      arrays_(std::move(memory_.arrays), std::move(memory_.arrays_staging)),
      sides_{SideLane(scratch_.side_workspaces[0]), SideLane(scratch_.side_workspaces[1])},
      sampler_(std::move(memory_.sampling), std::move(memory_.sampling_staging)),
      gate_(options.group, [this](const Step& step) { Join(step); }) {
  kernels::FillAsync(memory_.scratch.data(), 0, memory_.scratch.size(), stream_.get());
  const auto fill = [&](int ratio, const DeviceBuffer& table) {
    kernels::cuda::FillRopeTable(compress_rope_, ratio, Entries(config, ratio), table.As<float>(),
                                 stream_.get());
  };
  fill(ModelConfig::kCsaRatio, memory_.csa_rope);
  fill(ModelConfig::kHcaRatio, memory_.hca_rope);
  stream_.Synchronize();
}

CudaModel::Turn CudaModel::Enter(PassKind kind, const Pass& pass, int page_tokens, bool may_grow) {
  Turn turn{.shape = PassShape::Of(pass, page_tokens)};
  PassShape& shape = turn.shape;
  if (may_grow) {
    shape = StepGraphs::RoundUp(shape, page_tokens, config().max_position_embeddings);
    turn.step = gate_.Enter({.kind = kind,
                             .rows = shape.rows,
                             .sequence_rows = shape.sequence_rows,
                             .positions = shape.positions});
  } else {
    turn.step = gate_.Enter({.kind = kind, .rows = shape.rows});
  }
  if (ranks_ != nullptr) ranks_->Begin(turn.step);
  if (turn.step.same_shape()) {
    const int rank = ranks_ == nullptr ? 0 : options().group->rank();
    shape = StepGraphs::ShapeOf(turn.step, turn.step.rows[static_cast<size_t>(rank)], page_tokens);
  }
  turn.arrays = arrays_.Upload(pass, shape, stream_.get());
  return turn;
}

void CudaModel::RunTurn(const Turn& turn, const Pass& pass, const HeadWeights& head, uint64_t cache,
                        Result& result, const std::function<void(const PassContext&)>& layers) {
  if (!turn.step.same_shape()) {
    const PassContext context = ContextOf(turn.shape, turn.arrays);
    layers(context);
    return RunHeads(head, pass, context, result);
  }
  graphs_.Run(turn.step, cache, stream_.get(), [&] {
    const PassContext context = ContextOf(turn.shape, turn.arrays);
    layers(context);
    RunHeadOf(head, context.Rows(scratch_.streams), context);
  });
  AppendRows(pass.rows(), result);
}

void CudaModel::Join(const Step& step) {
  ranks_->Begin(step);
  const auto layers = [&] {
    const auto join = [&](const LayerWeights& layer) {
      ranks_->Join(layer.moe, stream_.get(), scratch_);
    };
    if (step.kind == PassKind::kDraft) return join(weights_.mtp->layer);
    std::for_each(weights_.layers.begin(), weights_.layers.end(), join);
  };
  if (!step.same_shape()) return layers();
  graphs_.Run(step, /*cache=*/0, stream_.get(), layers);
}

PassContext CudaModel::ContextOf(const PassShape& shape, const PassArrays::View& arrays) {
  const auto entry_rope = [&](int ratio, const DeviceBuffer& table) {
    return kernels::cuda::EntryRope{
        .frequencies = compress_rope_, .step = ratio, .table = table.As<float>()};
  };
  const PassContext context{.config = config(),
                            .numerics = options().numerics,
                            .deterministic = options().deterministic,
                            .index_topk = index_topk(),
                            .shape = shape,
                            .arrays = arrays,
                            .scratch = scratch_,
                            .csa_rope = entry_rope(ModelConfig::kCsaRatio, memory_.csa_rope),
                            .hca_rope = entry_rope(ModelConfig::kHcaRatio, memory_.hca_rope),
                            .stream = stream_.get(),
                            .sides = sides_,
                            .ranks = ranks_.get()};
  const int32_t* positions = arrays.batch.position;
  kernels::cuda::FillRope(rope_, positions, shape.rows, scratch_.rope, stream_.get());
  kernels::cuda::FillRope(compress_rope_, positions, shape.rows, scratch_.compress_rope,
                          stream_.get());
  return context;
}

template <typename Chunk>
void CudaModel::Begin(std::span<const Chunk> batch, Result& result) const {
  int64_t logits_rows = 0;
  int64_t streams_rows = 0;
  for (const Chunk& chunk : batch) {
    logits_rows += WantedLogits(chunk);
    streams_rows += RowsOf(chunk) - FirstStreamsRow(chunk);
  }
  result.sampling = SamplingOf(batch);
  result.logits.Begin(result.sampling.empty() ? logits_rows * config().vocab_size : 0);
  result.sampled.Begin(result.sampling);
  result.streams.Begin(streams_rows * scratch_.streams.cols);
}

ForwardResult CudaModel::Finish(Result& result) const {
  stream_.Synchronize();
  CheckSampled(result.sampled.tokens.values());
  result.logprobs = result.sampled.LogprobsOf(result.sampling);
  return {.logits = result.logits.values(),
          .tokens = result.sampled.tokens.values(),
          .logprobs = result.logprobs,
          .streams = result.streams.values()};
}

ForwardResult CudaModel::Forward(std::span<const SequenceChunk> batch, CacheStorage& cache,
                                 const ForwardObserver& observer) {
  BATON_CHECK(!observer.explains()) << "only the CPU explains selections";
  const std::vector<Pass> passes = PlanPasses(batch, scratch_.rows, PassArrays::kMaxPageIds);
  Begin(batch, trunk_);
  const bool observed = observer.on_layer || observer.on_selection;
  for (const Pass& pass : passes) {
    const Turn turn = Enter(PassKind::kTrunk, pass, cache.geometry().options.page_tokens,
                            /*may_grow=*/StepGraphs::Serve(pass) && !observed);
    RunTurn(turn, pass, weights_.head, cache.id(), trunk_, [&](const PassContext& context) {
      RunTrunk(context, pass.first_row, cache, observer);
    });
    AppendStreamsOf(pass, batch, trunk_);
  }
  return Finish(trunk_);
}

void CudaModel::RunTrunk(const PassContext& context, int64_t first_row, CacheStorage& cache,
                         const ForwardObserver& observer) {
  const MatrixView<BFloat16> x = context.Rows(scratch_.streams);
  const int64_t slot_bytes = cache.geometry().slot_bytes();
  kernels::cuda::Embed(
      {weights_.embedding.As<const BFloat16>(), config().vocab_size, config().hidden_size},
      context.arrays.tokens, config().hc_mult, x, stream_.get());
  for (int layer = 0; layer < config().num_hidden_layers; ++layer) {
    const LayerCache layer_cache = LayerCache::Trunk(cache, config(), layer);
    const MatrixView<const int32_t> selected =
        RunBlock(weights_.layers[layer], layer_cache, slot_bytes, x, context);
    if (selected && observer.on_selection) ReportSelection(first_row, layer, selected, observer);
    if (observer.on_layer) ReportLayer(context, first_row, layer, observer);
  }
  if (!config().has_mtp()) return;
  kernels::cuda::WriteRings(context.arrays.batch, MatrixView<const BFloat16>(x),
                            CarryOf<BFloat16>(cache), stream_.get());
}

ForwardResult CudaModel::ForwardMtp(std::span<const MtpChunk> batch, CacheStorage& cache) {
  BATON_CHECK(weights_.mtp.has_value()) << "the model has no MTP block";
  std::swap(mtp_, previous_mtp_);
  std::vector<MtpChunk> silent;
  std::vector<MtpChunk> speaking;
  for (const MtpChunk& chunk : batch) (chunk.wants_logits ? speaking : silent).push_back(chunk);
  Begin<MtpChunk>(batch, mtp_);
  StoreMtpWindows(silent, cache);
  RunMtp(speaking, cache);
  return Finish(mtp_);
}

void CudaModel::StoreMtpWindows(std::span<const MtpChunk> batch, CacheStorage& cache) {
  for (const Pass& pass : PlanPasses(batch, scratch_.rows)) {
    const PassShape shape = PassShape::Of(pass, /*page_tokens=*/0);
    const PassContext context = ContextOf(shape, arrays_.Upload(pass, shape, stream_.get()));
    CopyStreams(pass, batch);
    EmbedMtp(context);
    StoreBlockWindow(weights_.mtp->layer, LayerCache::Mtp(cache), cache.geometry().slot_bytes(),
                     context.Rows(scratch_.streams), context);
  }
}

void CudaModel::RunMtp(std::span<const MtpChunk> batch, CacheStorage& cache) {
  const MtpWeights& mtp = *weights_.mtp;
  const bool carried = !batch.empty() && batch.front().streams.empty();
  const auto layers = [&](const PassContext& context) {
    EmbedMtp(context);
    RunBlock(mtp.layer, LayerCache::Mtp(cache), cache.geometry().slot_bytes(),
             context.Rows(scratch_.streams), context);
  };
  for (const Pass& pass : PlanPasses(batch, scratch_.rows)) {
    const Turn turn =
        Enter(PassKind::kDraft, pass, /*page_tokens=*/0, /*may_grow=*/StepGraphs::Serve(pass));
    // Outside of graphs, which so serve both.
    if (carried) {
      kernels::cuda::ReadRings(turn.arrays.batch, CarryOf<const BFloat16>(cache),
                               scratch_.streams.Rows(0, turn.shape.rows), stream_.get());
    } else {
      CopyStreams(pass, batch);
    }
    RunTurn(turn, pass, mtp.head, cache.id(), mtp_, layers);
    AppendStreamsOf(pass, batch, mtp_);
  }
}

void CudaModel::CopyStreams(const Pass& pass, std::span<const MtpChunk> batch) {
  const MatrixView<BFloat16>& x = scratch_.streams;
  int64_t row = 0;
  ForEachChunkOf(pass, batch, [&](const MtpChunk& chunk, int64_t first, int64_t end) {
    BATON_CHECK(std::ssize(chunk.streams) == RowsOf(chunk) * x.cols) << chunk.streams.size();
    kernels::CopyAsync(x.Row(row), chunk.streams.data() + first * x.cols,
                       (end - first) * x.cols * int64_t{sizeof(BFloat16)}, stream_.get());
    row += end - first;
  });
}

// streams[t, j] = e_proj(norm(embedding of the next token)) + h_proj(norm(X[t, j])).
void CudaModel::EmbedMtp(const PassContext& context) {
  const MtpWeights& mtp = *weights_.mtp;
  const int64_t hidden = config().hidden_size;
  const MatrixView<BFloat16> x = context.Rows(scratch_.streams);
  const MatrixView<BFloat16> embedded = context.Rows(scratch_.embedded);
  kernels::cuda::Embed({weights_.embedding.As<const BFloat16>(), config().vocab_size, hidden},
                       context.arrays.tokens, /*copies=*/1, embedded, stream_.get());
  const auto project = [&](MatrixView<BFloat16> values, const DeviceBuffer& norm,
                           const Linear& matrix) {
    const auto quantized = PassContext::Shape(scratch_.streams_quantized, values.rows);
    kernels::cuda::RmsNorm({.x = values,
                            .weight = norm.As<BFloat16>(),
                            .eps = config().rms_norm_eps,
                            .quantized = quantized},
                           stream_.get());
    matrix.Run(ReadOnly(quantized), values, scratch_.workspace, stream_.get());
  };
  project(embedded, mtp.embedding_norm, *mtp.e_proj);
  project({x.data, x.rows * config().hc_mult, hidden}, mtp.streams_norm, *mtp.h_proj);
  kernels::cuda::AddEmbeddingToStreams(embedded, x, stream_.get());
}

void CudaModel::RunHeadOf(const HeadWeights& head, MatrixView<const BFloat16> streams,
                          const PassContext& context) {
  RunHead(head, *weights_.lm_head, streams, scratch_.logits.Rows(0, streams.rows), context);
}

void CudaModel::RunHeads(const HeadWeights& head, const Pass& pass, const PassContext& context,
                         Result& result) {
  const std::vector<int64_t>& wanted = pass.logits_rows;
  const int64_t width = scratch_.streams.cols;
  for (size_t done = 0; done < wanted.size();) {
    const auto count = std::min<int64_t>(kMaxLogitsRows, std::ssize(wanted) - done);
    for (int64_t i = 0; i < count;) {
      const int64_t first = wanted[done + i];
      int64_t run = 1;
      while (i + run < count && wanted[done + i + run] == first + run) ++run;
      kernels::CopyAsync(scratch_.head_streams.Row(i), scratch_.streams.Row(first),
                         run * width * int64_t{sizeof(BFloat16)}, stream_.get());
      i += run;
    }
    RunHeadOf(head, scratch_.head_streams.Rows(0, count), context);
    AppendRows(count, result);
    done += count;
  }
}

void CudaModel::AppendRows(int64_t rows, Result& result) {
  const MatrixView<float> logits = scratch_.logits.Rows(0, rows);
  if (result.sampling.empty()) return result.logits.Append(logits, stream_.get());
  const auto sampling =
      std::span<const RowSampling>(result.sampling)
          .subspan(result.sampled.tokens.values().size(), static_cast<size_t>(rows));
  sampler_.Sample(logits, sampling, result.sampled, stream_.get());
}

template <typename Chunk>
void CudaModel::AppendStreamsOf(const Pass& pass, std::span<const Chunk> batch, Result& result) {
  int64_t row = 0;  // of the pass
  ForEachChunkOf(pass, batch, [&](const Chunk& chunk, int64_t first, int64_t end) {
    const int64_t wanted = std::clamp<int64_t>(FirstStreamsRow(chunk), first, end);
    result.streams.Append(scratch_.streams.Rows(row + wanted - first, end - wanted), stream_.get());
    row += end - first;
  });
}

void CudaModel::ReportLayer(const PassContext& context, int64_t first_row, int layer,
                            const ForwardObserver& observer) {
  const MatrixView<const BFloat16> rows = context.Rows(scratch_.streams);
  HostRows<BFloat16> streams;
  streams.Begin(rows.rows * rows.cols);
  streams.Append(rows, stream_.get());
  stream_.Synchronize();
  observer.on_layer(layer, first_row, streams.values());
}

void CudaModel::ReportSelection(int64_t first_row, int layer, MatrixView<const int32_t> selected,
                                const ForwardObserver& observer) {
  HostRows<int32_t> entries;
  entries.Begin(selected.rows * selected.cols);
  entries.Append(selected, stream_.get());
  stream_.Synchronize();
  for (int64_t row = 0; row < selected.rows; ++row) {
    const std::span<const int32_t> slots =
        entries.values().subspan(row * selected.cols, selected.cols);
    const auto used = std::find(slots.begin(), slots.end(), -1) - slots.begin();
    observer.on_selection(layer, first_row + row, slots.first(used));
  }
}

}  // namespace baton::engine::cuda
