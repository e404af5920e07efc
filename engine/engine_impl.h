#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "engine/cache/ledger.h"
#include "engine/cache/page_list.h"
#include "engine/cache/sequence_records.h"
#include "engine/cache/storage.h"
#include "engine/engine.h"
#include "engine/sampler/sampler.h"
#include "engine/sequence.h"

// What engine.cc and step.cc share; nobody else includes it.

namespace baton::engine {

struct Engine::Impl {
  Impl(const EngineOptions& options, std::string model_hash, const CacheGeometry& geometry,
       const ModelConfig& config, Weights weights)
      : options(options),
        model_hash(std::move(model_hash)),
        storage(geometry),
        ledger(geometry.options.pages, geometry.options.slots),
        model(config, std::move(weights), options.forward) {}

  const EngineOptions options;
  const std::string model_hash;
  CacheStorage storage;
  CacheLedger ledger;
  Model model;
  Sampler sampler;

  const CacheGeometry& geometry() const { return storage.geometry(); }
  int64_t max_sequence_tokens() const;
  SequenceLimits LimitsOf(int64_t prompt_tokens) const {
    return {.prompt_tokens = prompt_tokens,
            .max_context = max_sequence_tokens(),
            .eos_token_id = model.config().eos_token_id};
  }
  // Drafts the next decode step of a sequence verifies: none beyond its last token.
  int64_t DraftsFor(int64_t tokens, int64_t max_tokens) const;
};

struct Sequence::State {
  State(const CacheStorage& storage, CacheLedger& ledger, int64_t max_pages)
      : storage(storage), ledger(ledger), pages(max_pages) {}
  ~State() {
    if (slot >= 0) ledger.Close(slot);
  }

  const CacheStorage& storage;
  CacheLedger& ledger;
  PageList pages;
  int slot = -1;  // < 0: nothing is held
  std::unique_ptr<StoredRecords> records;
  // The MTP window has its rows of positions [0, mtp_rows), as far as they can still be attended.
  // Row t needs token t + 1, so it is at most computed and may lag behind by what the last decode
  // step verified; X of those rows lies in the carry ring.
  int64_t mtp_rows = 0;
};

}  // namespace baton::engine
