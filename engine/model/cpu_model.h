#pragma once

#include <memory>

#include "engine/model/forward.h"
#include "engine/model/weights.h"

namespace baton::engine {

// The model on this machine's cores, over a cache in main memory.
class CpuModel final : public Model {
 public:
  CpuModel(const ModelConfig& config, Weights weights, const ForwardOptions& options);
  ~CpuModel() override;

  using Model::Forward;
  ForwardResult Forward(std::span<const SequenceChunk> batch, CacheStorage& cache,
                        const ForwardObserver& observer) override;
  ForwardResult ForwardMtp(std::span<const MtpChunk> batch, CacheStorage& cache) override;
  void JoinPass() override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::engine
