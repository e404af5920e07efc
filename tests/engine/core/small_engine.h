#pragma once

#include "engine/engine.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace baton::testing {

// One engine for all tests of a binary, which leave it empty: eight pages of 128 tokens, two slots.
inline engine::Engine& SmallEngine() {
  static engine::Engine* const engine = [] {
    engine::EngineOptions options;
    options.model_dir = BATON_SOURCE_DIR "/models/needle-17m";
    options.cache = {.page_tokens = 128, .pages = 8, .slots = 2};
    options.forward.threads = 1;
    auto created = engine::Engine::Create(options);
    EXPECT_THAT(created, IsOk());
    return created->release();
  }();
  return *engine;
}

}  // namespace baton::testing
