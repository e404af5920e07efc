#include "engine/cuda/expert_ranks.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/status_macros.h"
#include "engine/cuda/moe_layer.h"
#include "kernels/cuda/expert_ranks.h"
#include "kernels/cuda/grouped_experts.h"
#include "kernels/cuda/permute.h"
#include "kernels/runtime/device.h"
#include "kernels/runtime/stream.h"

namespace baton::engine::cuda {
namespace {

// What others say that they bring has room here, and what this rank brings is believed.
static_assert(kMaxPassRows == Wish::kMaxRows);

using kernels::Communicator;
using kernels::MatrixView;

// Rank 0's, on all ranks.
absl::StatusOr<Communicator::Id> SharedId(ExpertGroup& group) {
  Communicator::Id id{};
  if (group.rank() == 0) {
    const std::string error = Communicator::MakeId(id);
    if (!error.empty()) return absl::UnavailableError(error);
  }
  const auto size = static_cast<size_t>(group.size());
  const Communicator::Id mine = id;
  std::vector<std::span<const std::byte>> to(size);
  std::vector<std::span<std::byte>> from(size);
  if (group.rank() == 0) std::fill(to.begin(), to.end(), std::as_bytes(std::span(mine)));
  from[0] = std::as_writable_bytes(std::span(id));
  to[0] = group.rank() == 0 ? to[0] : std::span<const std::byte>();
  BATON_RETURN_IF_ERROR(group.Exchange(to, from));
  return id;
}

int64_t RowBytes(const ModelConfig& config) {
  return kernels::cuda::DispatchedRowBytes(config.hidden_size, config.num_experts_per_tok);
}
int64_t SumBytes(const ModelConfig& config) { return config.hidden_size * int64_t{sizeof(float)}; }

}  // namespace

absl::StatusOr<std::unique_ptr<ExpertRanks>> ExpertRanks::Connect(ExpertGroup& group,
                                                                  const ModelConfig& config) {
  BATON_CHECK(group.size() <= kernels::cuda::kMaxRanks) << group.size() << " ranks";
  BATON_ASSIGN_OR_RETURN(const Communicator::Id id, SharedId(group));
  std::optional<Communicator> communicator;
  const std::string error = Communicator::Create(id, group.rank(), group.size(), communicator);
  if (!error.empty()) return absl::UnavailableError(error);
  const int64_t rows = group.size() * kMaxPassRows;
  auto memory = kernels::DeviceBuffer::Allocate(rows * (RowBytes(config) + 2 * SumBytes(config)));
  if (!memory) {
    return absl::ResourceExhaustedError(absl::StrCat("no room for the rows of ", group.size(),
                                                     " ranks in the memory of ",
                                                     kernels::CurrentDevice().name));
  }
  std::unique_ptr<ExpertRanks> ranks(
      new ExpertRanks(group, config, *std::move(communicator), *std::move(memory)));
  // Connections, and the memory that they take, are made by the first exchange.
  const kernels::Stream stream;
  ranks->Begin({.rows = std::vector<int64_t>(static_cast<size_t>(group.size()), 1)});
  ranks->Dispatch(stream.get());
  stream.Synchronize();
  return ranks;
}

ExpertRanks::ExpertRanks(ExpertGroup& group, const ModelConfig& config, Communicator communicator,
                         kernels::DeviceBuffer memory)
    : group_(group),
      config_(config),
      communicator_(std::move(communicator)),
      memory_(std::move(memory)) {
  const int64_t rows = group.size() * kMaxPassRows;
  part_ = memory_.As<float>();
  sums_ = part_ + rows * config.hidden_size;
  dispatched_ = reinterpret_cast<std::byte*>(sums_ + rows * config.hidden_size);
  group.Watch([this] {
    const std::string error = communicator_.Health();
    return error.empty() ? absl::OkStatus() : absl::UnavailableError(error);
  });
}

ExpertRanks::~ExpertRanks() { group_.Watch({}); }

void ExpertRanks::Exchange(std::span<const Communicator::Piece> pieces, CUstream_st* stream) {
  const std::string error = communicator_.Exchange(pieces, stream);
  if (!error.empty()) {
    EndProcess(absl::UnavailableError(absl::StrCat("rank ", group_.rank(), ": ", error)));
  }
}

void ExpertRanks::Dispatch(CUstream_st* stream) {
  const int64_t bytes = RowBytes(config_);
  std::vector<Communicator::Piece> pieces;
  const auto rank = static_cast<size_t>(group_.rank());
  for (size_t r = 0; r < step_.rows.size(); ++r) {
    pieces.push_back({.to = dispatched_ + step_.begin(rank) * bytes,
                      .to_bytes = own() * bytes,
                      .from = dispatched_ + step_.begin(r) * bytes,
                      .from_bytes = step_.rows[r] * bytes});
  }
  Exchange(pieces, stream);
}

void ExpertRanks::Run(const MoeWeights& weights, const Rows& rows, CUstream_st* stream,
                      const Scratch& scratch) {
  BATON_CHECK(rows.x.rows == own()) << rows.x.rows << " rows, " << own() << " agreed on";
  kernels::cuda::PackRows(
      {.x = rows.x,
       .experts = rows.experts,
       .weights = rows.weights,
       .out = dispatched_ + step_.begin(static_cast<size_t>(group_.rank())) * RowBytes(config_)},
      stream);
  Dispatch(stream);
  ComputePart(weights, stream, scratch);
  GiveBack(stream);
}

void ExpertRanks::Join(const MoeWeights& weights, CUstream_st* stream, const Scratch& scratch) {
  Run(weights,
      {.x = {.cols = config_.hidden_size},
       .experts = {nullptr, 0, config_.num_experts_per_tok},
       .weights = nullptr},
      stream, scratch);
}

// As many rows at a time as the intermediates hold: all of them in decoding.
void ExpertRanks::ComputePart(const MoeWeights& weights, CUstream_st* stream,
                              const Scratch& scratch) {
  const int64_t total = step_.total();
  for (int64_t begin = 0; begin < total; begin += scratch.rows) {
    const int64_t rows = std::min(scratch.rows, total - begin);
    const auto x = PassContext::Shape(scratch.expert_input, rows);
    const MatrixView<int32_t> experts = scratch.experts.Rows(0, rows);
    kernels::cuda::UnpackRows({.rows = dispatched_ + begin * RowBytes(config_),
                               .x = x,
                               .experts = experts,
                               .weights = scratch.expert_weights.data},
                              stream);
    kernels::cuda::AssignSlots({.experts = experts,
                                .weights = scratch.expert_weights.data,
                                .first_expert = weights.first_expert,
                                .expert_count = weights.bank.experts,
                                .begin = scratch.expert_begin,
                                .row = scratch.slot_row,
                                .weight = scratch.slot_weight,
                                .slot = scratch.slot.data},
                               stream);
    const MatrixView<const BFloat16> y = RunExperts(weights, config_, ReadOnly(x), stream, scratch);
    kernels::cuda::SumSlots(
        {.y = y,
         .slot = scratch.slot.Rows(0, rows),
         .sum = {part_ + begin * config_.hidden_size, rows, config_.hidden_size}},
        stream);
  }
}

void ExpertRanks::GiveBack(CUstream_st* stream) {
  const int64_t hidden = config_.hidden_size;
  std::vector<Communicator::Piece> pieces;
  for (size_t r = 0; r < step_.rows.size(); ++r) {
    pieces.push_back({.to = part_ + step_.begin(r) * hidden,
                      .to_bytes = step_.rows[r] * SumBytes(config_),
                      .from = sums_ + static_cast<int64_t>(r) * own() * hidden,
                      .from_bytes = own() * SumBytes(config_)});
  }
  Exchange(pieces, stream);
}

void ExpertRanks::Add(MatrixView<const BFloat16> shared, MatrixView<BFloat16> out,
                      CUstream_st* stream) const {
  kernels::cuda::AddRanksParams params{.ranks = group_.size(), .shared = shared, .out = out};
  for (int r = 0; r < group_.size(); ++r) {
    const auto rank = static_cast<size_t>(r);
    params.sums[rank] = (r == group_.rank() ? part_ + step_.begin(rank) * config_.hidden_size
                                            : sums_ + r * own() * config_.hidden_size);
  }
  kernels::cuda::AddRanks(params, stream);
}

}  // namespace baton::engine::cuda
