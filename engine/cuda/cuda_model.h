#pragma once

#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/cuda/pass_arrays.h"
#include "engine/cuda/pass_context.h"
#include "engine/cuda/scratch.h"
#include "engine/cuda/weights.h"
#include "engine/model/checkpoint.h"
#include "engine/model/forward.h"
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

  using Model::Forward;
  ForwardResult Forward(std::span<const SequenceChunk> batch, CacheStorage& cache,
                        const ForwardObserver& observer) override;
  ForwardResult ForwardMtp(std::span<const MtpChunk> batch, CacheStorage& cache) override;
  void JoinPass() override {}

 private:
  struct Memory {
    kernels::DeviceBuffer scratch;
    kernels::DeviceBuffer csa_rope;
    kernels::DeviceBuffer hca_rope;
    kernels::DeviceBuffer arrays;
    kernels::PinnedBuffer arrays_staging;
  };
  static absl::StatusOr<Memory> Allocate(const ModelConfig& config, const ForwardOptions& options,
                                         const Weights& weights);
  CudaModel(const ModelConfig& config, const ForwardOptions& options, Weights weights,
            Memory memory);

  PassContext Begin(const Pass& pass);
  void RunTrunk(const PassContext& context, CacheStorage& cache, const ForwardObserver& observer);
  void RunMtp(std::span<const MtpChunk> batch, bool want_logits, CacheStorage& cache);
  void EmbedMtp(const PassContext& context, std::span<const MtpChunk> batch);
  void AppendLogits(const HeadWeights& head, const PassContext& context);
  // Rows [begin, end) of the pass's X.
  void AppendStreams(const PassContext& context, int64_t begin, int64_t end);
  void ReportLayer(const PassContext& context, int layer, const ForwardObserver& observer);
  void ReportSelection(const PassContext& context, int layer,
                       kernels::MatrixView<const int32_t> selected,
                       const ForwardObserver& observer);
  template <typename T>
  void Append(kernels::MatrixView<const T> rows, std::vector<T>& to);

  const Weights weights_;
  Memory memory_;
  const Scratch scratch_;
  const kernels::cuda::RopeFrequencies rope_;
  const kernels::cuda::RopeFrequencies compress_rope_;
  kernels::Stream stream_;
  PassArrays arrays_;
  // What the last Forward and ForwardMtp returned. The input of a draft step may be the streams of
  // the one before, so that ForwardMtp keeps two in turn.
  struct Result {
    std::vector<float> logits;
    std::vector<BFloat16> streams;
  };
  Result trunk_;
  Result mtp_;
  Result previous_mtp_;
  Result* result_ = &trunk_;
};

}  // namespace baton::engine::cuda
