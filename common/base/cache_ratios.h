#pragma once

// How models of this family keep a sequence. Cache format and kernels hard-wire these.

namespace baton {

inline constexpr int kWindowTokens = 128;  // a window, the token that attends included
inline constexpr int kCsaRatio = 4;        // tokens that a CSA entry and its index key stand for
inline constexpr int kHcaRatio = 128;      // tokens that an HCA entry stands for

}  // namespace baton
