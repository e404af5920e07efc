#include "engine/model/expert_ranks.h"

#include <cstring>

#include "kernels/moe.h"

namespace baton::engine {

using kernels::MatrixView;

namespace {

// Copies `count` values to or from a row on its way, and moves past them.
template <typename T>
void Put(const T* values, int64_t count, std::byte*& at) {
  std::memcpy(at, values, static_cast<size_t>(count) * sizeof(T));
  at += static_cast<size_t>(count) * sizeof(T);
}
template <typename T>
void Take(T* values, int64_t count, const std::byte*& at) {
  std::memcpy(values, at, static_cast<size_t>(count) * sizeof(T));
  at += static_cast<size_t>(count) * sizeof(T);
}

// Parts of `bytes` for each rank, one after the other; part r has counts[r] * each bytes.
template <typename Byte>
std::vector<std::span<Byte>> Cut(std::span<Byte> bytes, std::span<const int64_t> counts,
                                 size_t each) {
  std::vector<std::span<Byte>> parts;
  for (const int64_t count : counts) {
    parts.push_back(bytes.first(static_cast<size_t>(count) * each));
    bytes = bytes.subspan(parts.back().size());
  }
  return parts;
}

}  // namespace

ExpertRanks::ExpertRanks(ExpertGroup& group, const ModelConfig& config)
    : group_(group), config_(config) {}

size_t ExpertRanks::RowBytes() const {
  const auto hidden = static_cast<size_t>(config_.hidden_size);
  const auto k = static_cast<size_t>(config_.num_experts_per_tok);
  return hidden * sizeof(BFloat16) + k * (sizeof(int32_t) + sizeof(float));
}

void ExpertRanks::Exchange(std::span<const std::span<const std::byte>> to,
                           std::span<const std::span<std::byte>> from) {
  const absl::Status status = group_.Exchange(to, from);
  if (!status.ok()) EndProcess(status);
}

void ExpertRanks::Run(const MoeWeights& weights, const Rows& rows, kernels::ThreadPool& pool) {
  Dispatch(rows);
  ComputePart(weights, pool);

  const int64_t hidden = config_.hidden_size;
  const size_t row_bytes = static_cast<size_t>(hidden) * sizeof(float);
  const std::vector<int64_t> own(step_.rows.size(), rows.x.rows);
  sums_.resize(static_cast<size_t>(std::ssize(own) * rows.x.rows * hidden));
  Exchange(Cut(std::as_bytes(std::span(part_)), step_.rows, row_bytes),
           Cut(std::as_writable_bytes(std::span(sums_)), own, row_bytes));
  std::vector<MatrixView<const float>> sums;
  for (int64_t rank = 0; rank < std::ssize(own); ++rank) {
    sums.push_back({sums_.data() + rank * rows.x.rows * hidden, rows.x.rows, hidden});
  }
  kernels::MoeJoin({.x = rows.x,
                    .sums = sums,
                    .shared = &weights.shared,
                    .limit = config_.swiglu_limit,
                    .out = rows.out},
                   pool);
}

void ExpertRanks::Join(const MoeWeights& weights, kernels::ThreadPool& pool) {
  const int64_t hidden = config_.hidden_size;
  const int64_t k = config_.num_experts_per_tok;
  Run(weights,
      {.x = {nullptr, 0, hidden},
       .experts = {nullptr, 0, k},
       .weights = {nullptr, 0, k},
       .out = {nullptr, 0, hidden}},
      pool);
}

void ExpertRanks::Dispatch(const Rows& rows) {
  const int64_t hidden = config_.hidden_size;
  const int64_t k = config_.num_experts_per_tok;
  const int64_t total = step_.total();
  sent_.resize(static_cast<size_t>(rows.x.rows) * RowBytes());
  std::byte* to = sent_.data();
  for (int64_t row = 0; row < rows.x.rows; ++row) {
    Put(rows.x.Row(row), hidden, to);
    Put(rows.experts.Row(row), k, to);
    Put(rows.weights.Row(row), k, to);
  }
  gathered_.resize(static_cast<size_t>(total) * RowBytes());
  const std::vector<std::span<const std::byte>> everybody(step_.rows.size(), sent_);
  Exchange(everybody, Cut(std::span(gathered_), step_.rows, RowBytes()));

  x_.resize(static_cast<size_t>(total * hidden));
  experts_.resize(static_cast<size_t>(total * k));
  weights_.resize(static_cast<size_t>(total * k));
  const std::byte* from = gathered_.data();
  for (int64_t row = 0; row < total; ++row) {
    Take(x_.data() + row * hidden, hidden, from);
    Take(experts_.data() + row * k, k, from);
    Take(weights_.data() + row * k, k, from);
  }
}

void ExpertRanks::ComputePart(const MoeWeights& weights, kernels::ThreadPool& pool) {
  const int64_t hidden = config_.hidden_size;
  const int64_t k = config_.num_experts_per_tok;
  const int64_t total = step_.total();
  part_.resize(static_cast<size_t>(total * hidden));
  kernels::MoePart({.x = {x_.data(), total, hidden},
                    .experts = {experts_.data(), total, k},
                    .weights = {weights_.data(), total, k},
                    .first_expert = weights.first_expert,
                    .routed = weights.routed,
                    .limit = config_.swiglu_limit,
                    .sum = {part_.data(), total, hidden}},
                   pool);
}

}  // namespace baton::engine
