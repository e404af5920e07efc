#pragma once

#include <cstdint>
#include <vector>

#include "common/sampling_params.h"
#include "tests/golden/golden_file.h"
#include "tests/testing/status_matchers.h"

namespace baton::testing {

// Prompts of tests/golden with the reference's continuation.
inline const golden::GoldenFile& Golden() {
  static const golden::GoldenFile* const file = [] {
    auto loaded =
        golden::LoadGoldenFile(BATON_SOURCE_DIR "/tests/golden/needle-17m.safetensors", 1024);
    EXPECT_THAT(loaded, IsOk());
    return new golden::GoldenFile(loaded.ok() ? *std::move(loaded) : golden::GoldenFile());
  }();
  return *file;
}

inline const golden::GoldenCase& GoldenCaseOf(int64_t tokens) {
  for (const golden::GoldenCase& found : Golden().cases) {
    if (std::ssize(found.ids) == tokens) return found;
  }
  ADD_FAILURE() << "no golden case of " << tokens << " tokens";
  return Golden().cases.front();
}

// The first `tokens` of a long golden prompt: text, without a question.
inline std::vector<int32_t> Text(int64_t tokens) {
  const std::vector<int32_t>& ids = Golden().cases.back().ids;
  EXPECT_LE(tokens, std::ssize(ids));
  return {ids.begin(), ids.begin() + tokens};
}

inline SamplingParams Greedy(uint32_t max_tokens) {
  return {.temperature = 0, .max_tokens = max_tokens};
}

// Goes on to max_tokens whatever is sampled.
inline SamplingParams Endless(uint32_t max_tokens) {
  return {.temperature = 0, .max_tokens = max_tokens, .ignore_eos = true};
}

}  // namespace baton::testing
