#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/cache/ledger.h"
#include "engine/cache/page_list.h"
#include "engine/cache/storage.h"
#include "engine/engine.h"
#include "engine/model/backend.h"
#include "engine/parallel/expert_group.h"
#include "engine/sequence.h"

// What engine.cc, prefix.cc and step.cc share; nobody else includes it.

namespace baton::engine {

struct Engine::Impl {
  Impl(const EngineOptions& options, std::string model_hash, std::unique_ptr<ExpertGroup> group,
       std::unique_ptr<Backend> backend, std::unique_ptr<Model> model,
       std::unique_ptr<CacheStorage> storage)
      : options(options),
        model_hash(std::move(model_hash)),
        group(std::move(group)),
        backend(std::move(backend)),
        model(std::move(model)),
        storage(std::move(storage)),
        layout(geometry().layout()),
        ledger({.pages = geometry().options.pages,
                .slots = geometry().options.slots,
                .page_tokens = geometry().options.page_tokens,
                .prefix = options.prefix}) {}

  const EngineOptions options;
  const std::string model_hash;
  const std::unique_ptr<ExpertGroup> group;  // null: all experts are here
  const std::unique_ptr<Backend> backend;
  const std::unique_ptr<Model> model;
  const std::unique_ptr<CacheStorage> storage;
  const CacheLayout layout;
  CacheLedger ledger;

  const CacheGeometry& geometry() const { return storage->geometry(); }
  int64_t max_sequence_tokens() const;
  SequenceLimits LimitsOf(int64_t prompt_tokens) const {
    return {.prompt_tokens = prompt_tokens,
            .max_context = max_sequence_tokens(),
            .eos_token_id = model->config().eos_token_id};
  }
  // prefix.cc: what sequences begin from, and what they leave.
  void Begin(Sequence& sequence, PrefixUse use, const CacheLedger::Opening& opening);
  void Keep(const Sequence& sequence, int64_t tokens);
  bool CatchUpMtpRows(Sequence& sequence);
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
  std::unique_ptr<SequenceRecords> records;
  // The MTP window has its rows of positions [0, mtp_rows), as far as they can still be attended.
  // Row t needs token t + 1, so it is at most computed and may lag behind by what the last decode
  // step verified; X of those rows lies in the carry ring.
  int64_t mtp_rows = 0;
  // The end of the last forward pass: rows of rejected drafts count, for they are in the rings.
  int64_t forwarded = 0;
  // Positions of the prompt at which its state is to be kept; ascending, not reached yet.
  std::vector<int64_t> boundaries;
};

}  // namespace baton::engine
