#include "engine/parallel/step_board.h"

#include <algorithm>
#include <utility>

namespace baton::engine {

bool Grants(const Step& step, size_t rank, const Wish& wish) {
  const int64_t rows = step.rows[rank];
  if (rows == 0) return true;
  if (step.kind != wish.kind) return false;
  if (!step.same_shape()) return rows == wish.rows;
  return wish.sequence_rows > 0 && rows >= wish.rows && step.sequence_rows >= wish.sequence_rows &&
         step.positions >= wish.positions;
}

std::optional<Step> StepBoard::Decide() {
  std::optional<PassKind> first;
  for (const std::optional<Wish>& wish : said_) {
    if (!wish) return std::nullopt;
    if (wish->rows == Wish::kResting) continue;
    first = first ? std::min(*first, wish->kind) : wish->kind;
  }
  if (!first) return std::nullopt;
  Step step{.number = ++decided_, .kind = *first};
  int64_t most_rows = 0;
  bool all_may_grow = true;
  for (std::optional<Wish>& said : said_) {
    const Wish wish = *std::exchange(said, std::nullopt);
    const bool runs = wish.rows != Wish::kResting && wish.kind == *first;
    step.rows.push_back(runs ? wish.rows : 0);
    if (!runs) continue;
    all_may_grow &= wish.sequence_rows > 0;
    most_rows = std::max(most_rows, wish.rows);
    step.sequence_rows = std::max(step.sequence_rows, wish.sequence_rows);
    step.positions = std::max(step.positions, wish.positions);
  }
  if (all_may_grow) {
    for (int64_t& rows : step.rows) rows = rows == 0 ? 0 : most_rows;
  } else {
    step.sequence_rows = step.positions = 0;
  }
  return step;
}

std::vector<int> StepBoard::Busy() const {
  std::vector<int> busy;
  for (size_t rank = 0; rank < said_.size(); ++rank) {
    if (!said_[rank]) busy.push_back(static_cast<int>(rank));
  }
  return busy;
}

}  // namespace baton::engine
