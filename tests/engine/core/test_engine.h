#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/cache_layout.h"
#include "engine/engine.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

// Engines over the small trained checkpoint, and the plain loop that a worker runs around them.

namespace baton::engine {

inline EngineOptions TestOptions() {
  EngineOptions options;
  options.model_dir = BATON_SOURCE_DIR "/models/needle-17m";
  options.cache = {.page_tokens = 128, .pages = 24, .slots = 4, .rollback_rows = 8};
  options.draft_tokens = 2;
  return options;
}

inline std::unique_ptr<Engine> MakeEngine(const EngineOptions& options) {
  absl::StatusOr<std::unique_ptr<Engine>> engine = Engine::Create(options);
  EXPECT_THAT(engine, ::baton::testing::IsOk());
  return engine.ok() ? *std::move(engine) : nullptr;
}

// Tests of one engine with drafts and of one without, of a suite's own.
class DraftingAndPlainEngines : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    drafting_ = MakeEngine(TestOptions());
    EngineOptions options = TestOptions();
    options.draft_tokens = 0;
    plain_ = MakeEngine(options);
  }
  static void TearDownTestSuite() {
    drafting_.reset();
    plain_.reset();
  }
  static inline std::unique_ptr<Engine> drafting_;
  static inline std::unique_ptr<Engine> plain_;
};

// Tokens that look like text to the model: two phrases in turn, with noise.
inline std::vector<int32_t> TestPrompt(int64_t tokens, uint32_t seed = 1) {
  std::mt19937 random(seed);
  std::vector<int32_t> phrase(23);
  for (int32_t& token : phrase) token = static_cast<int32_t>(8 + random() % 1016);
  std::vector<int32_t> prompt = {0, 3};  // beginning of sequence, user
  while (std::ssize(prompt) < tokens) {
    const bool noise = random() % 8 == 0;
    prompt.push_back(noise ? static_cast<int32_t>(8 + random() % 1016)
                           : phrase[prompt.size() % phrase.size()]);
  }
  prompt.resize(static_cast<size_t>(tokens));
  return prompt;
}

inline SamplingParams Greedy(uint32_t max_tokens) {
  return {.temperature = 0, .max_tokens = max_tokens, .ignore_eos = true};
}

inline std::unique_ptr<Sequence> MakeSequence(Engine& engine, std::vector<int32_t> prompt,
                                              const SamplingParams& sampling) {
  const int64_t reserve = std::ssize(prompt) + sampling.max_tokens;
  absl::StatusOr<std::unique_ptr<Sequence>> sequence =
      engine.NewSequence(std::move(prompt), sampling, reserve);
  EXPECT_THAT(sequence, ::baton::testing::IsOk());
  return sequence.ok() ? *std::move(sequence) : nullptr;
}

// Next prompt chunk of at most `chunk` tokens, or a decode step.
inline StepItem NextItem(Sequence& sequence, int64_t chunk) {
  const int64_t left = std::max<int64_t>(sequence.prompt_tokens() - sequence.computed(), 0);
  return {.sequence = &sequence, .tokens = static_cast<int32_t>(std::min(left, chunk))};
}

struct Generated {
  std::vector<int32_t> tokens;  // without the prompt
  Finish finish = Finish::kNo;
  int drafted = 0;
  int accepted = 0;
};

// Steps the sequence by itself until it has ended.
inline Generated RunToEnd(Engine& engine, Sequence& sequence, int64_t chunk = 512) {
  Generated generated;
  generated.finish = engine.FinishOf(sequence);
  while (generated.finish == Finish::kNo) {
    const StepItem item = NextItem(sequence, chunk);
    const StepOutput output = engine.Step({&item, 1}).at(0);
    generated.finish = output.finish;
    generated.drafted += output.drafted;
    generated.accepted += output.accepted;
  }
  generated.tokens.assign(sequence.tokens().begin() + sequence.prompt_tokens(),
                          sequence.tokens().end());
  return generated;
}

inline Generated Generate(Engine& engine, std::vector<int32_t> prompt,
                          const SamplingParams& sampling, int64_t chunk = 512) {
  const std::unique_ptr<Sequence> sequence = MakeSequence(engine, std::move(prompt), sampling);
  return RunToEnd(engine, *sequence, chunk);
}

inline std::vector<std::byte> GatherRange(Engine& engine, Sequence& sequence,
                                          const RecordRange& range) {
  const uint32_t bytes = engine.geometry().layout().Find(range.stream)->record_bytes;
  std::vector<std::byte> records(static_cast<size_t>(range.indices.size()) * bytes);
  sequence.records().Gather(range, records);
  return records;
}

template <typename Visit>
void ForEachLiveRange(const CacheLayout& layout, int64_t tokens, Visit visit) {
  for (const StreamLayout& stream : layout.streams) {
    for (uint32_t layer = 0; layer < stream.layers; ++layer) {
      visit(RecordRange{stream.stream, layer, LiveRecords(stream.stream, tokens)});
    }
  }
}

}  // namespace baton::engine
