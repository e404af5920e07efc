#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "engine/cuda/pass_context.h"
#include "engine/cuda/weights.h"
#include "engine/parallel/expert_group.h"
#include "kernels/cuda/fp8_rows.h"
#include "kernels/matrix.h"
#include "kernels/runtime/buffer.h"
#include "kernels/runtime/nccl.h"

namespace baton::engine::cuda {

// The experts of a MoE layer whose routed ones lie on the ranks of a group, each on a GPU of its
// own: every rank calls Run for the same layers in the same order. See engine/model/expert_ranks.h
// and kernels/cuda/expert_ranks.h.
class ExpertRanks {
 public:
  // Connects the devices. UNAVAILABLE when NCCL is not there or fails, RESOURCE_EXHAUSTED when its
  // memory is not. `group` outlives it.
  static absl::StatusOr<std::unique_ptr<ExpertRanks>> Connect(ExpertGroup& group,
                                                              const ModelConfig& config);
  ~ExpertRanks();

  // The pass that the calls below are about from now on.
  void Begin(const Step& step) { step_ = step; }

  // This rank's rows of the pass, none of them if it only joins. May lie in the scratch memory:
  // Run reads them before it writes there.
  struct Rows {
    kernels::cuda::Fp8Rows x;
    kernels::MatrixView<const int32_t> experts;
    const float* weights = nullptr;
  };
  // Computes what this rank has to for all rows, and gathers the sums over the routed experts of
  // its own.
  void Run(const MoeWeights& weights, const Rows& rows, CUstream_st* stream,
           const Scratch& scratch);
  // Run without rows.
  void Join(const MoeWeights& weights, CUstream_st* stream, const Scratch& scratch);
  // out = the gathered sums and the shared expert's output, which may be out.
  void Add(kernels::MatrixView<const BFloat16> shared, kernels::MatrixView<BFloat16> out,
           CUstream_st* stream) const;

 private:
  ExpertRanks(ExpertGroup& group, const ModelConfig& config, kernels::Communicator communicator,
              kernels::DeviceBuffer memory);

  void Exchange(std::span<const kernels::Communicator::Piece> pieces, CUstream_st* stream);
  void Dispatch(CUstream_st* stream);
  void ComputePart(const MoeWeights& weights, CUstream_st* stream, const Scratch& scratch);
  void GiveBack(CUstream_st* stream);
  int64_t own() const { return step_.rows[static_cast<size_t>(group_.rank())]; }

  ExpertGroup& group_;
  const ModelConfig config_;
  kernels::Communicator communicator_;
  const kernels::DeviceBuffer memory_;
  // In it:
  std::byte* dispatched_ = nullptr;  // rows of all ranks
  float* part_ = nullptr;            // [rows of all ranks, hidden] sums over the experts here
  float* sums_ = nullptr;            // [ranks, own rows, hidden]; the own rank's stay in part_
  Step step_;
};

}  // namespace baton::engine::cuda
