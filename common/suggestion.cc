#include "common/suggestion.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

// Letters to add, leave out, replace, or swap with their neighbour.
int EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<std::vector<int>> of(a.size() + 1, std::vector<int>(b.size() + 1));  // prefixes
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        of[i][j] = static_cast<int>(i + j);
        continue;
      }
      const int replaced = of[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      of[i][j] = std::min({replaced, of[i - 1][j] + 1, of[i][j - 1] + 1});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) of[i][j] = std::min(of[i][j], of[i - 2][j - 2] + 1);
    }
  }
  return of[a.size()][b.size()];
}

}  // namespace

std::string Suggestion(absl::string_view name, const std::vector<std::string>& names,
                       absl::string_view prefix) {
  const std::string* best = nullptr;
  int best_distance = 1 + std::max<int>(2, static_cast<int>(name.size()) / 3);
  for (const std::string& candidate : names) {
    const int distance = EditDistance(name, candidate);
    if (distance < best_distance) {
      best = &candidate;
      best_distance = distance;
    }
  }
  return best == nullptr ? "" : absl::StrCat(", did you mean ", prefix, *best, "?");
}

}  // namespace baton
