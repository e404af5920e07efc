#pragma once

#include "engine/model/config.h"
#include "kernels/rope.h"

// The two rotations of a model.

namespace baton::engine {

// Of window layers and the MTP block.
inline kernels::RopeConfig PlainRope(const ModelConfig& config) {
  return {.theta = config.rope_theta};
}

// Of layers that compress (YaRN).
inline kernels::RopeConfig CompressRope(const ModelConfig& config) {
  const ModelConfig::RopeScaling& scaling = config.rope_scaling;
  return {.theta = config.compress_rope_theta,
          .factor = scaling.factor,
          .original_positions = scaling.original_max_position_embeddings,
          .beta_fast = scaling.beta_fast,
          .beta_slow = scaling.beta_slow};
}

}  // namespace baton::engine
