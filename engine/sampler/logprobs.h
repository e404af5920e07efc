#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "common/base/token_logprobs.h"

namespace baton::engine {

// A row of kernels/logprobs.h with at least `top` places beside the first, as it is handed on: of
// those places the first `top`, as far as there are so many ids.
inline TokenLogprobs LogprobsOfRow(std::span<const TokenLogprob> row, int32_t top) {
  const std::span<const TokenLogprob> places = row.subspan(1, static_cast<size_t>(top));
  const auto end = std::find_if(places.begin(), places.end(),
                                [](const TokenLogprob& entry) { return entry.token < 0; });
  return {.chosen = row.front(), .top = {places.begin(), end}};
}

}  // namespace baton::engine
