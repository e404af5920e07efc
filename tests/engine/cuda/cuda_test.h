#pragma once

#include <algorithm>
#include <iterator>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "engine/cache/storage.h"
#include "engine/model/backend.h"
#include "engine/model/checkpoint.h"
#include "gtest/gtest.h"
#include "kernels/runtime/device.h"
#include "tests/engine/model/test_files.h"
#include "tests/engine/model/test_model.h"
#include "tests/testing/status_matchers.h"

namespace baton::engine {

// The small checkpoint on both backends.
struct BothBackends {
  static const Checkpoint& SharedCheckpoint() {
    static const Checkpoint* const checkpoint = new Checkpoint(*Checkpoint::Open(kModelDir));
    return *checkpoint;
  }
  static Backend& Get(const std::string& name) {
    static Backend* const cpu = MakeBackend("cpu")->release();
    static Backend* const cuda = MakeBackend("cuda")->release();
    return name == "cpu" ? *cpu : *cuda;
  }
  // With a top-k that makes short prompts select.
  static Model& ModelOf(const std::string& name) {
    static Model* const cpu = Load("cpu");
    static Model* const cuda = Load("cuda");
    return name == "cpu" ? *cpu : *cuda;
  }
  static CacheGeometry Geometry(const CacheOptions& options) {
    return *MakeCacheGeometry(SharedCheckpoint().config(), options);
  }

 private:
  static Model* Load(const std::string& name) {
    constexpr int kTopK = 64;
    return Get(name).LoadModel(SharedCheckpoint(), {.index_topk = kTopK})->release();
  }
};

// One sequence in slot 1 of a backend, on pages in an order that no arithmetic would guess.
struct Place {
  static constexpr CacheOptions kOptions{.page_tokens = 256, .pages = 8, .slots = 3};

  explicit Place(const std::string& name, const CacheOptions& options = kOptions)
      : model(BothBackends::ModelOf(name)),
        cache(*BothBackends::Get(name).NewCache(BothBackends::Geometry(options))),
        pages(static_cast<size_t>(options.pages)) {
    std::iota(pages.begin(), pages.end(), 0);
    std::shuffle(pages.begin(), pages.end(), std::mt19937(3));
  }
  // Logits of all rows of [begin, end), `chunk` tokens a call.
  LogitsRows Run(std::span<const int32_t> tokens, int64_t begin, int64_t end, int64_t chunk) {
    LogitsRows rows;
    for (int64_t done = begin; done < end; done += chunk) {
      const auto count = static_cast<size_t>(std::min(chunk, end - done));
      const SequenceChunk one{
          .tokens = tokens.subspan(done, count), .start = done, .pages = pages, .slot = 1};
      LogitsRows more =
          SplitRows(model.Forward({&one, 1}, *cache).logits, model.config().vocab_size);
      std::move(more.begin(), more.end(), std::back_inserter(rows));
    }
    return rows;
  }

  Model& model;
  std::unique_ptr<CacheStorage> cache;
  std::vector<int32_t> pages;
};
}  // namespace baton::engine
