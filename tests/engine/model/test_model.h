#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "engine/cache/geometry.h"
#include "engine/cache/storage.h"
#include "engine/model/checkpoint.h"
#include "engine/model/cpu_model.h"
#include "engine/model/weights.h"
#include "gtest/gtest.h"
#include "tests/engine/model/test_files.h"

// The trained checkpoint with a small top-k, so that short prompts already have to select, and a
// driver that keeps one sequence's place.

namespace baton::engine {

inline constexpr int kTestTopK = 16;

inline Model& TestModel() {
  static Model* const model = [] {
    const Checkpoint checkpoint = *Checkpoint::Open(kModelDir);
    return new CpuModel(checkpoint.config(), *LoadWeights(checkpoint),
                        {.index_topk = kTestTopK, .threads = 2});
  }();
  return *model;
}

inline CacheGeometry TestGeometry(CacheOptions options) {
  return *MakeCacheGeometry(TestModel().config(), options);
}

inline CacheGeometry TestGeometry() {
  return TestGeometry({.page_tokens = 128, .pages = 24, .slots = 4});
}

// Text-like: a few phrases that recur, so that attention has something to find.
inline std::vector<int32_t> TestTokens(int64_t count, uint32_t seed = 1) {
  std::mt19937 random(seed);
  std::vector<int32_t> phrase(37);
  for (int32_t& token : phrase) token = static_cast<int32_t>(8 + random() % 1016);
  std::vector<int32_t> tokens(count);
  for (int64_t i = 0; i < count; ++i) {
    tokens[i] =
        random() % 4 == 0 ? static_cast<int32_t>(8 + random() % 1016) : phrase[i % phrase.size()];
  }
  return tokens;
}

using LogitsRows = std::vector<std::vector<float>>;

inline LogitsRows SplitRows(std::span<const float> logits, int64_t width) {
  LogitsRows rows;
  for (size_t begin = 0; begin < logits.size(); begin += width) {
    rows.emplace_back(logits.begin() + begin, logits.begin() + begin + width);
  }
  return rows;
}

// One sequence in a cache.
class TestSequence {
 public:
  TestSequence(CacheStorage& cache, int slot, std::vector<int32_t> pages)
      : cache_(cache), slot_(slot), pages_(std::move(pages)) {}
  // Slot 0 and all pages, in an order that no arithmetic would guess.
  explicit TestSequence(CacheStorage& cache) : TestSequence(cache, 0, {}) {
    pages_.resize(cache.geometry().options.pages);
    std::iota(pages_.begin(), pages_.end(), 0);
    std::shuffle(pages_.begin(), pages_.end(), std::mt19937(7));
  }

  SequenceChunk Chunk(std::span<const int32_t> tokens, int64_t start) const {
    return {.tokens = tokens, .start = start, .pages = pages_, .slot = slot_};
  }

  // Computes `tokens` at the current place and moves past them; logits of every row.
  LogitsRows Append(std::span<const int32_t> tokens) {
    LogitsRows rows = Compute(tokens);
    position_ += static_cast<int64_t>(tokens.size());
    return rows;
  }
  // Computes `tokens` as a draft that is then rejected: the place stays.
  LogitsRows Compute(std::span<const int32_t> tokens) {
    const SequenceChunk chunk = Chunk(tokens, position_);
    return SplitRows(TestModel().Forward({&chunk, 1}, cache_).logits,
                     TestModel().config().vocab_size);
  }
  // As Append, in calls of at most `chunk` tokens.
  LogitsRows AppendInChunks(std::span<const int32_t> tokens, size_t chunk) {
    LogitsRows rows;
    for (size_t done = 0; done < tokens.size(); done += chunk) {
      LogitsRows more = Append(tokens.subspan(done, std::min(chunk, tokens.size() - done)));
      std::move(more.begin(), more.end(), std::back_inserter(rows));
    }
    return rows;
  }

  void Restart() { position_ = 0; }
  int64_t position() const { return position_; }
  int slot() const { return slot_; }

 private:
  CacheStorage& cache_;
  int slot_;
  std::vector<int32_t> pages_;
  int64_t position_ = 0;
};

// Every op computes a row from the row's own inputs in a fixed order, so that results do not depend
// on how rows are grouped into calls: equal means equal in every bit.
inline void ExpectEqualRows(const LogitsRows& actual, const LogitsRows& expected,
                            int64_t first_expected, const std::string& what) {
  ASSERT_LE(first_expected + actual.size(), expected.size()) << what;
  for (size_t row = 0; row < actual.size(); ++row) {
    const std::vector<float>& want = expected[first_expected + row];
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_EQ(actual[row][i], want[i])
          << what << ": position " << first_expected + row << ", logit " << i;
    }
  }
}

}  // namespace baton::engine
