#pragma once

#include <chrono>
#include <thread>

namespace baton::testing {

// Generous: for what must happen, not for how fast.
inline constexpr std::chrono::seconds kPatience{120};

// Polls until `condition` holds; false when it did not within kPatience.
template <typename Condition>
bool Eventually(Condition condition) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace baton::testing
