#pragma once

#include <cstdint>

namespace baton::kernels::cuda {

struct CosSin {
  float cosine;
  float sine;
};

// Of an angle below 2^22 turns, which is taken as exact: less whole turns, of which two parts make
// one, it goes to the special function unit. Off by 2^-20 at most.
__device__ inline CosSin CosSinOf(float angle) {
  constexpr float kTurn = 6.2831855f;
  constexpr float kRestOfTurn = -1.7484556e-7f;
  constexpr float kRound = 0x1.8p23f;  // what is added to it keeps no fraction
  const float turns = __fmaf_rn(angle, 0.15915494f, kRound) - kRound;
  const float rest = __fmaf_rn(turns, -kRestOfTurn, __fmaf_rn(turns, -kTurn, angle));
  return {.cosine = __cosf(rest), .sine = __sinf(rest)};
}

}  // namespace baton::kernels::cuda
