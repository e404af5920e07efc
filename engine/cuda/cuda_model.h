#pragma once

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/cuda/device_sampler.h"
#include "engine/cuda/expert_ranks.h"
#include "engine/cuda/host_rows.h"
#include "engine/cuda/pass_arrays.h"
#include "engine/cuda/pass_context.h"
#include "engine/cuda/scratch.h"
#include "engine/cuda/side_lane.h"
#include "engine/cuda/step_graphs.h"
#include "engine/cuda/weights.h"
#include "engine/model/checkpoint.h"
#include "engine/model/forward.h"
#include "engine/model/pass.h"
#include "engine/parallel/pass_gate.h"
#include "kernels/cuda/rope.h"
#include "kernels/runtime/buffer.h"
#include "kernels/runtime/stream.h"

namespace baton::engine::cuda {

// The model on a GPU, over a cache in its memory. A call issues all its work on one stream, copies
// the wanted results to the host and returns when they are there, so that whoever reads the cache
// afterwards, on whatever stream, finds it written.
class CudaModel final : public Model {
 public:
  // Errors: LoadWeights of weights.h; ResourceExhausted also for the memory of intermediates.
  static absl::StatusOr<std::unique_ptr<CudaModel>> Load(const Checkpoint& checkpoint,
                                                         const ForwardOptions& options);

  // Device memory beside weights and tables, at any length of contexts, but for what expert ranks
  // take. All of it is allocated by Load.
  static int64_t TransientBytes(const ModelConfig& config, const ForwardOptions& options);

  using Model::Forward;
  ForwardResult Forward(std::span<const SequenceChunk> batch, CacheStorage& cache,
                        const ForwardObserver& observer) override;
  ForwardResult ForwardMtp(std::span<const MtpChunk> batch, CacheStorage& cache) override;
  void JoinPass() override { gate_.Join(); }

 private:
  struct Memory {
    kernels::DeviceBuffer scratch;
    kernels::DeviceBuffer csa_rope;
    kernels::DeviceBuffer hca_rope;
    kernels::DeviceBuffer arrays;
    kernels::PinnedBuffer arrays_staging;
    kernels::DeviceBuffer sampling;
    kernels::PinnedBuffer sampling_staging;
  };
  static absl::StatusOr<Memory> Allocate(const ModelConfig& config, const ForwardOptions& options);
  CudaModel(const ModelConfig& config, const ForwardOptions& options, Weights weights,
            Memory memory, std::unique_ptr<ExpertRanks> ranks);

  // What a call returns. The input of a draft step may be the streams of the one before, so that
  // ForwardMtp keeps two in turn.
  struct Result {
    std::vector<RowSampling> sampling;  // of all rows with logits; empty: these are wanted
    HostRows<float> logits;
    SampledRows sampled;
    std::vector<TokenLogprobs> logprobs;  // of `sampled`, once it has been waited for
    HostRows<BFloat16> streams;
  };
  template <typename Chunk>
  void Begin(std::span<const Chunk> batch, Result& result) const;
  // Waits for the device.
  ForwardResult Finish(Result& result) const;

  // A pass with MoE layers whose turn it is, with its arrays on the device. It is for a graph if
  // its step has the same shape on all ranks.
  struct Turn {
    Step step = {};
    PassShape shape = {};
    PassArrays::View arrays = {};
  };
  // Waits for the group, if there is one, to come to the pass.
  Turn Enter(PassKind kind, const Pass& pass, int page_tokens, bool may_grow);
  // Issues `layers`, which leave their output in scratch_.streams, and the head; or replays that.
  void RunTurn(const Turn& turn, const Pass& pass, const HeadWeights& head, uint64_t cache,
               Result& result, const std::function<void(const PassContext&)>& layers);
  // The MoE layers of a pass of other ranks.
  void Join(const Step& step);

  // Rotations of the rows included.
  PassContext ContextOf(const PassShape& shape, const PassArrays::View& arrays);
  void RunTrunk(const PassContext& context, int64_t first_row, CacheStorage& cache,
                const ForwardObserver& observer);
  // Rows that want no logits, and those that do.
  void StoreMtpWindows(std::span<const MtpChunk> batch, CacheStorage& cache);
  void RunMtp(std::span<const MtpChunk> batch, CacheStorage& cache);
  void CopyStreams(const Pass& pass, std::span<const MtpChunk> batch);
  void EmbedMtp(const PassContext& context);
  void RunHeadOf(const HeadWeights& head, kernels::MatrixView<const BFloat16> streams,
                 const PassContext& context);
  // The head for the rows that want it, a group at a time.
  void RunHeads(const HeadWeights& head, const Pass& pass, const PassContext& context,
                Result& result);
  // Logits of so many rows in the scratch memory, or the tokens chosen from them.
  void AppendRows(int64_t rows, Result& result);
  // X of the pass's rows that want it.
  template <typename Chunk>
  void AppendStreamsOf(const Pass& pass, std::span<const Chunk> batch, Result& result);
  void ReportLayer(const PassContext& context, int64_t first_row, int layer,
                   const ForwardObserver& observer);
  void ReportSelection(int64_t first_row, int layer, kernels::MatrixView<const int32_t> selected,
                       const ForwardObserver& observer);

  const Weights weights_;
  Memory memory_;
  const std::unique_ptr<ExpertRanks> ranks_;  // null: all experts are here
  const Scratch scratch_;
  const kernels::cuda::RopeFrequencies rope_;
  const kernels::cuda::RopeFrequencies compress_rope_;
  kernels::Stream stream_;
  PassArrays arrays_;
  std::array<SideLane, kSideLanes> sides_;
  DeviceSampler sampler_;
  StepGraphs graphs_;  // after ranks_, whose communicator waits for all graphs to be gone
  PassGate gate_;
  Result trunk_;
  Result mtp_;
  Result previous_mtp_;
};

}  // namespace baton::engine::cuda
