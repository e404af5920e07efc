#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/base/bf16.h"
#include "engine/model/checkpoint.h"
#include "engine/model/problems.h"
#include "kernels/matrix.h"

namespace baton::engine {

// A matrix of the checkpoint, copied.
template <typename T>
struct HostMatrix {
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<T> values;  // row-major

  kernels::MatrixView<T> view() { return {values.data(), rows, cols}; }
  kernels::MatrixView<const T> view() const { return {values.data(), rows, cols}; }

  // The rows of `bottom` below; it has as many columns.
  void Append(const HostMatrix& bottom);
};

// A linear layer as stored: FP8 codes with an E8M0 scale per 128 x 128 block, or packed FP4 codes
// (two a byte) with one per 32 columns of a row.
struct QuantizedMatrix {
  bool is_fp4 = false;
  HostMatrix<uint8_t> codes;
  HostMatrix<uint8_t> scales;

  // Row counts must be whole blocks of scales.
  void Append(const QuantizedMatrix& bottom);
};

// Reads the tensors under one prefix. The checkpoint's schema has been checked, so only values can
// be wrong; complaints are gathered in `problems`.
class TensorReader {
 public:
  TensorReader(const Checkpoint& checkpoint, std::string prefix, Problems& problems)
      : checkpoint_(checkpoint), prefix_(std::move(prefix)), problems_(problems) {}

  TensorReader Under(absl::string_view prefix) const;
  TensorReader Reporting(Problems& problems) const;  // the same tensors, complaints elsewhere
  const ModelConfig& config() const { return checkpoint_.config(); }

  std::vector<float> Vector(absl::string_view name) const;  // a BF16 or F32 tensor as FP32
  std::vector<BFloat16> Bf16Vector(absl::string_view name) const;
  HostMatrix<float> F32(absl::string_view name) const;
  HostMatrix<BFloat16> Bf16(absl::string_view name) const;
  QuantizedMatrix Quantized(const std::string& name) const;  // name.weight and name.scale
  // The same into memory of exactly that size. Thread-safe but for `problems`.
  void ReadQuantized(const std::string& name, std::span<std::byte> codes,
                     std::span<std::byte> scales) const;
  std::vector<int32_t> ExpertIds(absl::string_view name) const;

 private:
  const TensorView& Tensor(absl::string_view name) const;
  void NotFinite(absl::string_view name) const;
  void CheckQuantized(const std::string& name, bool is_fp4, std::span<const uint8_t> codes,
                      std::span<const uint8_t> scales) const;

  const Checkpoint& checkpoint_;
  const std::string prefix_;
  Problems& problems_;
};

}  // namespace baton::engine
