#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/cache/state_snapshot.h"

namespace baton::engine {

// What is kept for prompts to come. 0 pages: nothing.
struct PrefixLimits {
  int64_t pages = 0;
  int64_t states = 0;
};

// Which cached pages hold which tokens: a radix tree whose edges are whole pages of token ids, so
// that a node stands for everything before it too. Computing can go on only from a *boundary*,
// where a snapshot is kept: at a node, or some tokens beyond it, which the snapshot brings along.
// Token ids are compared, not their hashes: a match is exact.
//
// It names pages and knows neither their bytes nor who else holds them; the caller turns what it
// returns into holders. Pages here are full, hence never written again, hence safe to share. Pure;
// not thread-safe.
class PrefixIndex {
 public:
  using State = std::shared_ptr<const StateSnapshot>;

  // A cached beginning of a prompt of n tokens.
  struct Match {
    std::vector<int32_t> pages;  // of all pages that are cached, from the first
    State state;                 // of the longest boundary of at most n - 1 tokens; null: none
    int64_t resume_tokens() const { return state == nullptr ? 0 : state->tokens(); }
  };

  PrefixIndex(int page_tokens, const PrefixLimits& limits);
  ~PrefixIndex();

  Match Find(std::span<const int32_t> tokens) const;
  // Find, and it counts as used now.
  Match Use(std::span<const int32_t> tokens);
  // Whether there is a boundary of exactly these tokens.
  bool HasBoundary(std::span<const int32_t> tokens) const;

  // Adds the whole pages of `tokens` that are not there, pages[i] holding the i-th, and the
  // boundary that a non-null state makes of all of `tokens`. Returns the pages that the index holds
  // from now on: each needs a holder. Trim afterwards.
  std::vector<int32_t> Insert(std::span<const int32_t> tokens, std::span<const int32_t> pages,
                              State state);
  // Drops what was used longest ago until the limits are kept. Returns the pages it let go.
  std::vector<int32_t> Trim();
  // Drops what was used longest ago until `count` pages that only the index holds (as `sole` says)
  // have been let go. Returns all that it let go; nothing happens when there are too few.
  std::optional<std::vector<int32_t>> Evict(int64_t count,
                                            const std::function<bool(int32_t page)>& sole);

  std::vector<int32_t> pages() const;  // every page that it holds, each once
  int64_t states() const { return static_cast<int64_t>(states_by_use_.size()); }

 private:
  struct Boundary;
  struct Node;
  struct Path;

  Path Walk(std::span<const int32_t> tokens) const;
  static Match MatchOf(const Path& path);
  Node* AddPage(Node& parent, std::span<const int32_t> tokens, int32_t page);
  void SetState(Node& node, std::span<const int32_t> tail, State state);
  void Drop(Boundary& boundary);
  void Touch(Node* node);
  void Remove(Node& node, std::vector<int32_t>& pages);

  const size_t page_tokens_;
  const PrefixLimits limits_;
  const std::unique_ptr<Node> root_;
  // Used longest ago first. A node is never used without those above it, so it always stands before
  // them: what is dropped from the front is a leaf.
  std::list<Node*> by_use_;
  std::list<Boundary*> states_by_use_;
};

}  // namespace baton::engine
