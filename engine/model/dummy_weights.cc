#include "engine/model/dummy_weights.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/bf16.h"
#include "common/base/check.h"
#include "common/fnv1a.h"
#include "kernels/numeric.h"

namespace baton::engine {
namespace {

// Tensors of the same distribution: of their type's values, for so many columns. Vectors have 0.
using Kind = std::pair<TensorType, int64_t>;

constexpr int64_t kSlackBytes = int64_t{4} << 20;  // windows of one buffer lie no farther apart
constexpr int kAlignment = 16;
constexpr int kValues = 256;  // distinct values of a kind; a random byte chooses
constexpr int kScaleBias = 127;

// FP8 and FP4 codes spread over the same range, so that one rule serves the scales of both.
constexpr float kLargestCode = kernels::kE2m1Max;

// SplitMix64: a bijection of a counter, so that a buffer is the same wherever it is filled.
uint64_t RandomWord(uint64_t counter) {
  uint64_t word = counter * 0x9e3779b97f4a7c15;
  word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9;
  word = (word ^ (word >> 27)) * 0x94d049bb133111eb;
  return word ^ (word >> 31);
}

// In (-1, 1), evenly spaced, never 0.
float Even(int i) { return static_cast<float>(2 * i + 1 - kValues) / kValues; }

// Deviation 1 / sqrt(columns), of vectors small.
float Even(int i, int64_t columns) {
  constexpr float kVector = 0.1f;
  return Even(i) * (columns > 0 ? std::sqrt(3.0f / static_cast<float>(columns)) : kVector);
}

uint8_t Fp4Pair(int i) {
  constexpr std::array<uint8_t, 14> kNonZero = {1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 14, 15};
  return static_cast<uint8_t>(kNonZero[i % 14] | kNonZero[i / 14 % 14] << 4);
}

// Makes up for the size of codes and the number of columns, give or take a factor of two.
uint8_t Scale(int i, int64_t columns) {
  const double wanted = std::sqrt(3.0 / static_cast<double>(columns)) / kLargestCode;
  const int spread = i % 4 == 0 ? 1 : i % 4 == 1 ? -1 : 0;
  return static_cast<uint8_t>(kScaleBias + std::lround(std::log2(wanted)) + spread);
}

template <typename T, typename ValueOf>
void Fill(std::vector<std::byte>& buffer, uint64_t seed, ValueOf value_of) {
  std::array<T, kValues> values;
  for (int i = 0; i < kValues; ++i) values[i] = value_of(i);
  T* const target = reinterpret_cast<T*>(buffer.data());
  const size_t count = buffer.size() / sizeof(T);
  for (size_t i = 0; i < count; i += 8) {
    uint64_t word = RandomWord(seed + i);
    for (size_t j = i; j < std::min(i + 8, count); ++j, word >>= 8) target[j] = values[word & 0xff];
  }
}

// Rows of `columns` different experts.
void FillExperts(std::vector<std::byte>& buffer, int64_t columns, int experts) {
  auto* const target = reinterpret_cast<int64_t*>(buffer.data());
  const size_t rows = buffer.size() / sizeof(int64_t) / static_cast<size_t>(columns);
  for (size_t row = 0; row < rows; ++row) {
    const uint64_t word = RandomWord(row);
    const auto first = static_cast<int64_t>((word & 0xffffffff) % experts);
    const auto step = 1 + static_cast<int64_t>((word >> 32) % (experts / columns));
    for (int64_t j = 0; j < columns; ++j) {
      target[row * columns + j] = (first + j * step) % experts;
    }
  }
}

int64_t Bytes(const TensorSpec& spec) {
  int64_t bytes = TensorTypeBytes(spec.type);
  for (const int64_t size : spec.shape) bytes *= size;
  return bytes;
}

// Columns of the matrix, for scales those of the matrix they belong to; 0: a vector.
int64_t Columns(const std::string& name, const TensorSpec& spec,
                const std::map<std::string, TensorSpec>& specs) {
  if (spec.shape.size() < 2) return 0;
  if (spec.type != TensorType::kF8E8M0) return spec.shape[1];
  constexpr std::string_view kSuffix = "scale";
  const TensorSpec& matrix = specs.at(name.substr(0, name.size() - kSuffix.size()) + "weight");
  return matrix.shape[1] * (matrix.type == TensorType::kI8 ? 2 : 1);
}

std::vector<std::byte> Buffer(const Kind& kind, int64_t bytes, uint64_t seed, int experts) {
  std::vector<std::byte> buffer(static_cast<size_t>(bytes));
  const int64_t columns = kind.second;
  switch (kind.first) {
    case TensorType::kBf16:
      Fill<BFloat16>(buffer, seed, [&](int i) {
        constexpr float kNorm = 1;  // what a vector of BF16 is the weight of
        return BFloat16(columns > 0 ? Even(i, columns) : kNorm + Even(i) / 2);
      });
      break;
    case TensorType::kF32:
      Fill<float>(buffer, seed, [&](int i) { return Even(i, columns); });
      break;
    case TensorType::kF8E4M3:
      Fill<uint8_t>(buffer, seed,
                    [](int i) { return kernels::EncodeE4m3(kLargestCode * Even(i)); });
      break;
    case TensorType::kF8E8M0:
      Fill<uint8_t>(buffer, seed, [&](int i) { return Scale(i, columns); });
      break;
    case TensorType::kI8:
      Fill<uint8_t>(buffer, seed, Fp4Pair);
      break;
    case TensorType::kI64:
      FillExperts(buffer, columns, experts);
      break;
    case TensorType::kI32:
      BATON_CHECK(false) << "no tensor of a model is I32";
  }
  return buffer;
}

}  // namespace

DummyWeights::DummyWeights(const ModelConfig& config) {
  const auto specs = ExpectedTensors(config, /*fp4_experts=*/true);
  std::map<Kind, std::vector<std::string>> kinds;
  for (const auto& [name, spec] : specs) {
    kinds[{spec.type, Columns(name, spec, specs)}].push_back(name);
  }
  for (const auto& [kind, names] : kinds) {
    int64_t largest = 0;
    for (const std::string& name : names) largest = std::max(largest, Bytes(specs.at(name)));
    const uint64_t seed = buffers_.size() << 40;
    buffers_.push_back(Buffer(kind, largest + kSlackBytes, seed, config.n_routed_experts));
    // A table of experts begins with a whole row.
    const int64_t step = kind.first == TensorType::kI64 ? kind.second * 8 : kAlignment;
    for (const std::string& name : names) {
      const TensorSpec& spec = specs.at(name);
      const auto begin = static_cast<int64_t>(Fnv1a64(name) % (kSlackBytes / step)) * step;
      tensors_[name] = {.type = spec.type,
                        .shape = spec.shape,
                        .bytes = std::span(buffers_.back()).subspan(begin, Bytes(spec))};
    }
  }
}

}  // namespace baton::engine
