#pragma once

#include <cstddef>
#include <vector>

#include "engine/model/config.h"
#include "engine/model/schema.h"

namespace baton::engine {

// Random weights in the place of a checkpoint's, so that the speed of a shape can be measured
// without its 160 GB. The same for the same config on every machine. No value is zero, and matrices
// keep the size of what they multiply (deviation 1 / sqrt(columns)), so that activations stay as
// large as a trained model's and tokens spread over experts; what comes out has no meaning.
//
// Tensors are windows into one buffer for each kind of values and overlap: a model takes little
// more main memory than its largest tensor.
class DummyWeights {
 public:
  explicit DummyWeights(const ModelConfig& config);

  const TensorMap& tensors() const { return tensors_; }  // views, valid as long as this object

 private:
  std::vector<std::vector<std::byte>> buffers_;
  TensorMap tensors_;
};

}  // namespace baton::engine
