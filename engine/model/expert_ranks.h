#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/model/config.h"
#include "engine/model/weights.h"
#include "engine/parallel/expert_group.h"
#include "kernels/matrix.h"
#include "kernels/parallel.h"

namespace baton::engine {

// The experts of a MoE layer whose routed ones lie on the ranks of a group: every rank calls Run
// for the same layers in the same order. Rows are dispatched as
//   x BF16 [hidden] | expert ids int32 [k] | weights FP32 [k]
// and come back as sums FP32 [hidden].
class ExpertRanks {
 public:
  // `group` outlives it.
  ExpertRanks(ExpertGroup& group, const ModelConfig& config);

  // The pass that Run is about from now on.
  void Begin(const Step& step) { step_ = step; }

  // This rank's rows of the pass, none of them if it only joins; as kernels::MoeParams.
  struct Rows {
    kernels::MatrixView<const BFloat16> x;
    kernels::MatrixView<const int32_t> experts;
    kernels::MatrixView<const float> weights;
    kernels::MatrixView<BFloat16> out;
  };
  void Run(const MoeWeights& weights, const Rows& rows, kernels::ThreadPool& pool);
  // Run without rows.
  void Join(const MoeWeights& weights, kernels::ThreadPool& pool);

 private:
  void Dispatch(const Rows& rows);
  void ComputePart(const MoeWeights& weights, kernels::ThreadPool& pool);
  void Exchange(std::span<const std::span<const std::byte>> to,
                std::span<const std::span<std::byte>> from);
  size_t RowBytes() const;

  ExpertGroup& group_;
  const ModelConfig& config_;
  Step step_;
  std::vector<std::byte> sent_;      // own rows, as they are dispatched
  std::vector<std::byte> gathered_;  // rows of all ranks
  std::vector<BFloat16> x_;          // the same in columns
  std::vector<int32_t> experts_;
  std::vector<float> weights_;
  std::vector<float> part_;  // sums over the own experts of rows of all ranks
  std::vector<float> sums_;  // [ranks, own rows, hidden] over the experts of each rank
};

}  // namespace baton::engine
