#include "engine/model/pass.h"

#include <algorithm>

#include "common/base/check.h"

namespace baton::engine {
namespace {

class Planner {
 public:
  Planner(int64_t max_rows, int64_t max_page_ids)
      : max_rows_(max_rows), max_page_ids_(max_page_ids) {}

  // `segment` describes the whole chunk; its row numbers are filled in here.
  void Add(std::span<const int32_t> tokens, Segment segment, int64_t first_logits_row) {
    BATON_CHECK(segment.start >= 0) << segment.start;
    const int64_t total = static_cast<int64_t>(tokens.size());
    const int64_t start = segment.start;
    for (int64_t done = 0; done < total;) {
      Pass& pass = Open(segment);
      const int64_t rows = std::min(max_rows_ - pass.rows(), total - done);
      segment.first_row = pass.rows();
      segment.rows = rows;
      segment.start = start + done;
      pass.segments.push_back(segment);
      for (int64_t i = done; i < done + rows; ++i) {
        if (i >= first_logits_row) pass.logits_rows.push_back(pass.rows());
        pass.tokens.push_back(tokens[i]);
        pass.positions.push_back(start + i);
      }
      done += rows;
    }
  }

  std::vector<Pass> Take() { return std::move(passes_); }

 private:
  // The pass that has room for rows of the segment.
  Pass& Open(const Segment& segment) {
    if (passes_.empty() || passes_.back().rows() == max_rows_ || !HasPagesFor(segment)) {
      const int64_t first_row =
          passes_.empty() ? 0 : passes_.back().first_row + passes_.back().rows();
      passes_.emplace_back().first_row = first_row;
      most_pages_ = 0;
    }
    most_pages_ = std::max<int64_t>(most_pages_, std::ssize(segment.pages));
    return passes_.back();
  }
  bool HasPagesFor(const Segment& segment) const {
    const int64_t most = std::max<int64_t>(most_pages_, std::ssize(segment.pages));
    return (std::ssize(passes_.back().segments) + 1) * most <= max_page_ids_;
  }

  const int64_t max_rows_;
  const int64_t max_page_ids_;
  int64_t most_pages_ = 0;  // of a sequence of the last pass
  std::vector<Pass> passes_;
};

template <typename Chunk>
std::vector<RowSampling> Concatenate(std::span<const Chunk> batch) {
  std::vector<RowSampling> all;
  int64_t rows = 0;
  for (const Chunk& chunk : batch) {
    all.insert(all.end(), chunk.sampling.begin(), chunk.sampling.end());
    rows += WantedLogits(chunk);
  }
  BATON_CHECK(all.empty() || std::ssize(all) == rows)
      << all.size() << " of " << rows << " rows with logits are to be sampled";
  return all;
}

}  // namespace

std::vector<RowSampling> SamplingOf(std::span<const SequenceChunk> batch) {
  return Concatenate(batch);
}
std::vector<RowSampling> SamplingOf(std::span<const MtpChunk> batch) { return Concatenate(batch); }

std::vector<Pass> PlanPasses(std::span<const SequenceChunk> batch, int64_t max_rows,
                             int64_t max_page_ids) {
  Planner planner(max_rows, max_page_ids);
  for (const SequenceChunk& chunk : batch) {
    planner.Add(chunk.tokens, {.start = chunk.start, .pages = chunk.pages, .slot = chunk.slot},
                chunk.first_logits_row);
  }
  return planner.Take();
}

std::vector<Pass> PlanPasses(std::span<const MtpChunk> batch, int64_t max_rows) {
  Planner planner(max_rows, std::numeric_limits<int64_t>::max());
  for (const MtpChunk& chunk : batch) {
    planner.Add(chunk.next_tokens, {.start = chunk.start, .slot = chunk.slot},
                chunk.wants_logits ? 0 : std::ssize(chunk.next_tokens));
  }
  return planner.Take();
}

}  // namespace baton::engine
