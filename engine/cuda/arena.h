#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cuda/fp8_rows.h"
#include "kernels/matrix.h"

// One allocation for buffers of which some are never in use at the same time: these may lie in the
// same place. What lies where is decided once, so that places are the same for all time, as
// captured steps need it.

namespace baton::engine::cuda {

// When something is in use: from one stage of the work to another, both included. What is in use
// in the same stage may be so at the same moment.
struct Lifetime {
  int first = 0;
  int last = 0;

  bool Meets(const Lifetime& other) const { return first <= other.last && other.first <= last; }
};

// The places. Bytes whose lifetimes meet never coincide.
class ArenaPlan {
 public:
  static constexpr int64_t kAlignment = 256;

  // Consecutive bytes of a buffer. All parts but the last are multiples of kAlignment.
  struct Part {
    int64_t bytes = 0;
    Lifetime in_use;
  };
  // Buffers are numbered from 0 in the order of these calls.
  void Add(std::vector<Part> parts);
  // Once all are added. Those of most parts first, then large ones, each as low as it can lie.
  void Place();

  int64_t offset(size_t buffer) const { return buffers_[buffer].offset; }
  int64_t bytes() const { return bytes_; }

 private:
  struct Buffer {
    std::vector<Part> parts;
    int64_t bytes = 0;  // of all parts, the last one up to a multiple of kAlignment
    int64_t offset = 0;
  };

  static int64_t LowestPlace(const Buffer& buffer, const std::vector<const Buffer*>& placed);

  std::vector<Buffer> buffers_;
  int64_t bytes_ = 0;
};

// Deals out typed buffers. It is gone through twice, by the same calls in the same order: first to
// make the plan, then to follow it.
class Carver {
 public:
  explicit Carver(ArenaPlan& plan) : adding_(&plan) {}
  Carver(const ArenaPlan& plan, std::byte* memory) : following_(&plan), memory_(memory) {}

  template <typename T>
  T* Take(int64_t count, Lifetime in_use) {
    return reinterpret_cast<T*>(TakeParts({{count * int64_t{sizeof(T)}, in_use}}));
  }
  template <typename T>
  kernels::MatrixView<T> Matrix(int64_t rows, int64_t cols, Lifetime in_use) {
    return {Take<T>(rows * cols, in_use), rows, cols};
  }
  kernels::cuda::MutableFp8Rows Fp8(int64_t rows, int64_t cols, Lifetime in_use);

  std::byte* TakeParts(std::vector<ArenaPlan::Part> parts);

 private:
  ArenaPlan* adding_ = nullptr;
  const ArenaPlan* following_ = nullptr;
  std::byte* memory_ = nullptr;
  size_t taken_ = 0;
};

}  // namespace baton::engine::cuda
