#include "engine/model/tensor_reader.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace baton::engine {
namespace {

template <typename T>
std::vector<T> Copy(const TensorView& tensor) {
  BATON_CHECK(tensor.bytes.size() % sizeof(T) == 0);
  std::vector<T> values(tensor.bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

template <typename T>
HostMatrix<T> CopyMatrix(const TensorView& tensor) {
  return {tensor.shape[0], tensor.shape[1], Copy<T>(tensor)};
}

bool IsFinite(float value) { return std::isfinite(value); }
bool IsFinite(BFloat16 value) {
  constexpr uint16_t kExponent = 0x7f80;
  return (value.bits & kExponent) != kExponent;
}

template <typename T, typename Predicate>
bool AnyOf(const std::vector<T>& values, Predicate predicate) {
  return std::any_of(values.begin(), values.end(), predicate);
}

template <typename T>
bool AllFinite(const std::vector<T>& values) {
  return !AnyOf(values, [](T value) { return !IsFinite(value); });
}

}  // namespace

template <typename T>
void HostMatrix<T>::Append(const HostMatrix& bottom) {
  BATON_CHECK(cols == bottom.cols) << cols << " and " << bottom.cols << " columns";
  values.insert(values.end(), bottom.values.begin(), bottom.values.end());
  rows += bottom.rows;
}
template struct HostMatrix<uint8_t>;
template struct HostMatrix<BFloat16>;
template struct HostMatrix<float>;

void QuantizedMatrix::Append(const QuantizedMatrix& bottom) {
  const int64_t block_rows = is_fp4 ? 1 : 128;
  BATON_CHECK(is_fp4 == bottom.is_fp4 && codes.rows == scales.rows * block_rows)
      << codes.rows << " rows are not whole blocks";
  codes.Append(bottom.codes);
  scales.Append(bottom.scales);
}

TensorReader TensorReader::Under(absl::string_view prefix) const {
  return TensorReader(checkpoint_, absl::StrCat(prefix_, prefix), problems_);
}

TensorReader TensorReader::Reporting(Problems& problems) const {
  return TensorReader(checkpoint_, prefix_, problems);
}

std::vector<float> TensorReader::Vector(absl::string_view name) const {
  const TensorView& tensor = Tensor(name);
  std::vector<float> values;
  if (tensor.type == TensorType::kF32) {
    values = Copy<float>(tensor);
  } else {
    for (const BFloat16 value : Copy<BFloat16>(tensor)) {
      values.push_back(static_cast<float>(value));
    }
  }
  if (!AllFinite(values)) NotFinite(name);
  return values;
}

std::vector<BFloat16> TensorReader::Bf16Vector(absl::string_view name) const {
  std::vector<BFloat16> values = Copy<BFloat16>(Tensor(name));
  if (!AllFinite(values)) NotFinite(name);
  return values;
}

HostMatrix<float> TensorReader::F32(absl::string_view name) const {
  HostMatrix<float> matrix = CopyMatrix<float>(Tensor(name));
  if (!AllFinite(matrix.values)) NotFinite(name);
  return matrix;
}

HostMatrix<BFloat16> TensorReader::Bf16(absl::string_view name) const {
  HostMatrix<BFloat16> matrix = CopyMatrix<BFloat16>(Tensor(name));
  if (!AllFinite(matrix.values)) NotFinite(name);
  return matrix;
}

QuantizedMatrix TensorReader::Quantized(const std::string& name) const {
  const TensorView& weight = Tensor(name + ".weight");
  QuantizedMatrix matrix{.is_fp4 = weight.type == TensorType::kI8,
                         .codes = CopyMatrix<uint8_t>(weight),
                         .scales = CopyMatrix<uint8_t>(Tensor(name + ".scale"))};
  CheckQuantized(name, matrix.is_fp4, matrix.codes.values, matrix.scales.values);
  return matrix;
}

void TensorReader::ReadQuantized(const std::string& name, std::span<std::byte> codes,
                                 std::span<std::byte> scales) const {
  const TensorView& weight = Tensor(name + ".weight");
  const TensorView& scale = Tensor(name + ".scale");
  BATON_CHECK(codes.size() == weight.bytes.size() && scales.size() == scale.bytes.size())
      << prefix_ << name << ": " << weight.bytes.size() << " and " << scale.bytes.size()
      << " bytes";
  std::memcpy(codes.data(), weight.bytes.data(), codes.size());
  std::memcpy(scales.data(), scale.bytes.data(), scales.size());
  const auto bytes = [](std::span<std::byte> memory) {
    return std::span(reinterpret_cast<const uint8_t*>(memory.data()), memory.size());
  };
  CheckQuantized(name, weight.type == TensorType::kI8, bytes(codes), bytes(scales));
}

void TensorReader::CheckQuantized(const std::string& name, bool is_fp4,
                                  std::span<const uint8_t> codes,
                                  std::span<const uint8_t> scales) const {
  // The largest code is below 2^9 (e4m3) or 2^3 (e2m1), and BF16 ends at 2^128: a larger scale
  // than these may leave no finite value.
  const uint8_t max_scale = is_fp4 ? 127 + 125 : 127 + 119;
  const auto too_large = [&](uint8_t scale) { return scale > max_scale; };
  const auto is_nan = [](uint8_t code) { return (code & 0x7f) == 0x7f; };
  if ((!is_fp4 && std::any_of(codes.begin(), codes.end(), is_nan)) ||
      std::any_of(scales.begin(), scales.end(), too_large)) {
    NotFinite(name);
  }
}

std::vector<int32_t> TensorReader::ExpertIds(absl::string_view name) const {
  std::vector<int32_t> ids;
  for (const int64_t id : Copy<int64_t>(Tensor(name))) {
    if (id < 0 || id >= config().n_routed_experts) {
      problems_.Add(absl::StrCat(prefix_, name, " names expert ", id, ", there are ",
                                 config().n_routed_experts));
      return {};
    }
    ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

const TensorView& TensorReader::Tensor(absl::string_view name) const {
  return checkpoint_.tensor(absl::StrCat(prefix_, name));
}

void TensorReader::NotFinite(absl::string_view name) const {
  problems_.Add(absl::StrCat(prefix_, name, " has a value that is not finite"));
}

}  // namespace baton::engine
