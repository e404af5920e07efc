#include "engine/parallel/step_board.h"

#include <algorithm>

namespace baton::engine {

std::optional<Step> StepBoard::Decide() {
  std::optional<PassKind> first;
  for (const std::optional<Wish>& wish : said_) {
    if (!wish) return std::nullopt;
    if (wish->rows == Wish::kResting) continue;
    first = first ? std::min(*first, wish->kind) : wish->kind;
  }
  if (!first) return std::nullopt;
  Step step{.number = ++decided_, .kind = *first};
  for (std::optional<Wish>& wish : said_) {
    const bool joins = wish->rows != Wish::kResting && wish->kind == *first;
    step.rows.push_back(joins ? wish->rows : 0);
    wish.reset();
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
