#include "engine/recall/reference_index.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <numeric>

#include "common/base/check.h"

namespace baton::engine {
namespace {

constexpr int kDim = ModelConfig::kIndexHeadDim;
constexpr int kRopeDim = ModelConfig::kRopeDim;
constexpr int kGridGroup = 32;

// f_i of YaRN, pair by pair.
std::vector<float> Frequencies(const ModelConfig& config) {
  const ModelConfig::RopeScaling& scaling = config.rope_scaling;
  const auto pair_of = [&](double rotations) {
    return kRopeDim *
           std::log(scaling.original_max_position_embeddings / (rotations * 2 * std::numbers::pi)) /
           (2 * std::log(config.compress_rope_theta));
  };
  const double low = std::max(0.0, std::floor(pair_of(scaling.beta_fast)));
  const double high = std::min(kRopeDim - 1.0, std::ceil(pair_of(scaling.beta_slow)));
  std::vector<float> frequencies;
  for (int i = 0; i < kRopeDim / 2; ++i) {
    const double plain = std::pow(config.compress_rope_theta, -2.0 * i / kRopeDim);
    const double ramp = std::clamp((i - low) / std::max(high - low, 0.001), 0.0, 1.0);
    frequencies.push_back(static_cast<float>(plain * (1 - ramp) + plain / scaling.factor * ramp));
  }
  return frequencies;
}

// Walsh-Hadamard, orthonormal.
void Hadamard(std::span<float> vector) {
  for (size_t stride = 1; stride < vector.size(); stride *= 2) {
    for (size_t i = 0; i < vector.size(); ++i) {
      if ((i & stride) != 0) continue;
      const float a = vector[i];
      const float b = vector[i + stride];
      vector[i] = a + b;
      vector[i + stride] = a - b;
    }
  }
  const float scale = 1.0f / std::sqrt(static_cast<float>(vector.size()));
  for (float& value : vector) value *= scale;
}

// Nearest of 0, 0.5, 1, 1.5, 2, 3, 4, 6 in magnitude; halfway, the one of even code.
float RoundToE2m1(float value) {
  constexpr std::array<float, 8> kMagnitudes = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  const float magnitude = std::abs(value);
  size_t best = 0;
  for (size_t i = 1; i < kMagnitudes.size(); ++i) {
    const float nearer = std::abs(magnitude - kMagnitudes[i]);
    const float before = std::abs(magnitude - kMagnitudes[best]);
    if (nearer < before || (nearer == before && i % 2 == 0)) best = i;
  }
  return std::copysign(kMagnitudes[best], value);
}

void RoundToFp4Grid(std::span<float> vector) {
  for (size_t group = 0; group < vector.size(); group += kGridGroup) {
    const std::span<float> values = vector.subspan(group, kGridGroup);
    float amax = 6 * 0x1p-126f;
    for (const float value : values) amax = std::max(amax, std::abs(value));
    int exponent = 0;
    const float fraction = std::frexp(amax * (1.0f / 6.0f), &exponent);
    const float scale = std::ldexp(1.0f, fraction == 0.5f ? exponent - 1 : exponent);
    for (float& value : values) {
      value = RoundToE2m1(std::clamp(value / scale, -6.0f, 6.0f)) * scale;
    }
  }
}

}  // namespace

ReferenceIndex::ReferenceIndex(const ModelConfig& config, Numerics numerics,
                               std::vector<float> norm)
    : numerics_(numerics),
      eps_(config.rms_norm_eps),
      norm_(std::move(norm)),
      frequencies_(Frequencies(config)) {
  BATON_CHECK(norm_.size() == kDim) << norm_.size();
}

float ReferenceIndex::Rounded(float value) const {
  return numerics_ == Numerics::kReference ? static_cast<float>(BFloat16(value)) : value;
}

void ReferenceIndex::Rotate(std::span<float> vector, int64_t position) const {
  float* rope = vector.data() + kDim - kRopeDim;
  for (size_t i = 0; i < frequencies_.size(); ++i) {
    // As everywhere, the angle is an FP32 number.
    const double angle = static_cast<float>(position) * frequencies_[i];
    const auto cosine = static_cast<float>(std::cos(angle));
    const auto sine = static_cast<float>(std::sin(angle));
    const float a = rope[2 * i];
    const float b = rope[2 * i + 1];
    rope[2 * i] = Rounded(a * cosine - b * sine);
    rope[2 * i + 1] = Rounded(a * sine + b * cosine);
  }
}

void ReferenceIndex::Finish(std::span<float> vector, int64_t position) const {
  Rotate(vector, position);
  Hadamard(vector);
  if (numerics_ != Numerics::kReference) return;
  for (float& value : vector) value = Rounded(value);
  RoundToFp4Grid(vector);
}

void ReferenceIndex::SetEntries(int64_t first_entry, kernels::MatrixView<const BFloat16> pooled) {
  const auto end = static_cast<size_t>((first_entry + pooled.rows) * kDim);
  if (keys_.size() < end) keys_.resize(end);
  for (int64_t i = 0; i < pooled.rows; ++i) {
    const std::vector<float> values(pooled.Row(i), pooled.Row(i) + kDim);
    const float square =
        std::inner_product(values.begin(), values.end(), values.begin(), 0.0f) / kDim;
    const float factor = 1.0f / std::sqrt(square + eps_);
    const std::span<float> key(keys_.data() + (first_entry + i) * kDim, kDim);
    for (int c = 0; c < kDim; ++c) key[c] = Rounded(norm_[c] * (values[c] * factor));
    Finish(key, (first_entry + i) * kCsaRatio);
  }
}

std::vector<float> ReferenceIndex::Scores(int64_t position, std::span<const BFloat16> q,
                                          std::span<const BFloat16> w) const {
  const auto heads = static_cast<int64_t>(w.size());
  const int64_t visible = (position + 1) / kCsaRatio;
  BATON_CHECK(std::ssize(keys_) >= visible * kDim) << "entry " << visible - 1 << " was never set";
  std::vector<float> query(q.begin(), q.end());
  std::vector<float> weights(heads);
  const float scale = 1.0f / std::sqrt(static_cast<float>(kDim * heads));
  for (int64_t h = 0; h < heads; ++h) {
    Finish(std::span(query).subspan(h * kDim, kDim), position);
    weights[h] = Rounded(static_cast<float>(w[h]) * scale);
  }
  std::vector<float> scores(visible);
  for (int64_t j = 0; j < visible; ++j) {
    const float* key = keys_.data() + j * kDim;
    for (int64_t h = 0; h < heads; ++h) {
      const float dot = std::inner_product(key, key + kDim, query.data() + h * kDim, 0.0f);
      scores[j] += weights[h] * std::max(dot, 0.0f);
    }
  }
  return scores;
}

}  // namespace baton::engine
