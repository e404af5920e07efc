#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace baton {

// What whoever wrote `name`, which is none of `names`, may have meant: ", did you mean
// <prefix>page-tokens?", with the first of those that the fewest changes of a letter or swaps of
// two lead to. Empty if none is near.
std::string Suggestion(absl::string_view name, const std::vector<std::string>& names,
                       absl::string_view prefix = "");

}  // namespace baton
