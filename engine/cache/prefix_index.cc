#include "engine/cache/prefix_index.h"

#include <algorithm>
#include <map>
#include <utility>

#include "common/base/check.h"

namespace baton::engine {
namespace {

struct TokensLess {
  using is_transparent = void;
  bool operator()(std::span<const int32_t> a, std::span<const int32_t> b) const {
    return std::ranges::lexicographical_compare(a, b);
  }
};

template <typename Value>
using ByTokens = std::map<std::vector<int32_t>, Value, TokensLess>;

}  // namespace

struct PrefixIndex::Boundary {
  Node* node = nullptr;
  ByTokens<Boundary>::iterator self;  // in the node's boundaries
  State state;
  std::list<Boundary*>::iterator use;
};

// One page's tokens, given what its parent stands for.
struct PrefixIndex::Node {
  Node* parent = nullptr;                          // null: the root, which has no page
  ByTokens<std::unique_ptr<Node>>::iterator self;  // in the parent's children
  int32_t page = -1;
  ByTokens<std::unique_ptr<Node>> children;
  ByTokens<Boundary> boundaries;  // by the tokens after this node, fewer than a page
  std::list<Node*>::iterator use;
};

struct PrefixIndex::Path {
  std::vector<Node*> nodes;  // one for each whole page that is cached
  Boundary* boundary = nullptr;
};

PrefixIndex::PrefixIndex(int page_tokens, const PrefixLimits& limits)
    : page_tokens_(static_cast<size_t>(page_tokens)),
      limits_(limits),
      root_(std::make_unique<Node>()) {}

PrefixIndex::~PrefixIndex() = default;

PrefixIndex::Path PrefixIndex::Walk(std::span<const int32_t> tokens) const {
  Path path;
  Node* node = root_.get();
  for (size_t at = 0; at + page_tokens_ <= tokens.size(); at += page_tokens_) {
    const auto next = node->children.find(tokens.subspan(at, page_tokens_));
    if (next == node->children.end()) break;
    node = next->second.get();
    path.nodes.push_back(node);
  }
  // One token must be left to compute: the next one is sampled from its logits.
  const size_t limit = tokens.empty() ? 0 : tokens.size() - 1;
  size_t start = path.nodes.size() * page_tokens_;
  for (; path.boundary == nullptr; node = node->parent, start -= page_tokens_) {
    for (auto& [tail, boundary] : node->boundaries) {
      const bool fits = start + tail.size() <= limit &&
                        std::ranges::equal(tail, tokens.subspan(start, tail.size()));
      // Of those that fit each is a prefix of the next: the last is the longest.
      if (fits) path.boundary = &boundary;
    }
    if (node->parent == nullptr) break;
  }
  return path;
}

PrefixIndex::Match PrefixIndex::MatchOf(const Path& path) {
  Match match;
  for (const Node* node : path.nodes) match.pages.push_back(node->page);
  if (path.boundary != nullptr) match.state = path.boundary->state;
  return match;
}

PrefixIndex::Match PrefixIndex::Find(std::span<const int32_t> tokens) const {
  return MatchOf(Walk(tokens));
}

PrefixIndex::Match PrefixIndex::Use(std::span<const int32_t> tokens) {
  const Path path = Walk(tokens);
  if (path.boundary != nullptr) {
    states_by_use_.splice(states_by_use_.end(), states_by_use_, path.boundary->use);
  }
  if (!path.nodes.empty()) Touch(path.nodes.back());
  return MatchOf(path);
}

bool PrefixIndex::HasBoundary(std::span<const int32_t> tokens) const {
  const Path path = Walk(tokens);
  const Node& last = path.nodes.empty() ? *root_ : *path.nodes.back();
  return last.boundaries.contains(tokens.subspan(path.nodes.size() * page_tokens_));
}

// With everything above it, which stays behind it in the order.
void PrefixIndex::Touch(Node* node) {
  for (; node->parent != nullptr; node = node->parent) {
    by_use_.splice(by_use_.end(), by_use_, node->use);
  }
}

PrefixIndex::Node* PrefixIndex::AddPage(Node& parent, std::span<const int32_t> tokens,
                                        int32_t page) {
  const auto [self, inserted] = parent.children.try_emplace(
      std::vector<int32_t>(tokens.begin(), tokens.end()), std::make_unique<Node>());
  BATON_CHECK(inserted) << "a page of the same tokens is there";
  Node& child = *self->second;
  child.parent = &parent;
  child.self = self;
  child.page = page;
  child.use = by_use_.insert(by_use_.end(), &child);
  return &child;
}

void PrefixIndex::SetState(Node& node, std::span<const int32_t> tail, State state) {
  const auto [self, inserted] =
      node.boundaries.try_emplace(std::vector<int32_t>(tail.begin(), tail.end()));
  Boundary& boundary = self->second;
  if (inserted) {
    boundary.node = &node;
    boundary.self = self;
    boundary.use = states_by_use_.insert(states_by_use_.end(), &boundary);
  }
  // Another one of the same tokens has the same bytes.
  boundary.state = std::move(state);
  states_by_use_.splice(states_by_use_.end(), states_by_use_, boundary.use);
}

void PrefixIndex::Drop(Boundary& boundary) {
  states_by_use_.erase(boundary.use);
  boundary.node->boundaries.erase(boundary.self);  // destroys it
}

std::vector<int32_t> PrefixIndex::Insert(std::span<const int32_t> tokens,
                                         std::span<const int32_t> pages, State state) {
  std::vector<int32_t> held;
  if (limits_.pages == 0) return held;
  Node* node = root_.get();
  size_t at = 0;
  for (; at + page_tokens_ <= tokens.size(); at += page_tokens_) {
    const auto page = tokens.subspan(at, page_tokens_);
    const auto found = node->children.find(page);
    if (found != node->children.end()) {
      node = found->second.get();
      continue;
    }
    held.push_back(pages[at / page_tokens_]);
    node = AddPage(*node, page, held.back());
  }
  if (state != nullptr) {
    BATON_CHECK(state->tokens() == std::ssize(tokens))
        << "a state of " << state->tokens() << " tokens for " << tokens.size();
    SetState(*node, tokens.subspan(at), std::move(state));
  }
  Touch(node);
  return held;
}

// With everything below it.
void PrefixIndex::Remove(Node& node, std::vector<int32_t>& pages) {
  while (!node.children.empty()) Remove(*node.children.begin()->second, pages);
  while (!node.boundaries.empty()) Drop(node.boundaries.begin()->second);
  by_use_.erase(node.use);
  pages.push_back(node.page);
  node.parent->children.erase(node.self);  // destroys it
}

std::vector<int32_t> PrefixIndex::Trim() {
  std::vector<int32_t> let_go;
  while (states() > limits_.states) Drop(*states_by_use_.front());
  while (std::ssize(by_use_) > limits_.pages) Remove(*by_use_.front(), let_go);
  return let_go;
}

std::optional<std::vector<int32_t>> PrefixIndex::Evict(int64_t count,
                                                       const std::function<bool(int32_t)>& sole) {
  const auto is_sole = [&](const Node* node) { return sole(node->page); };
  if (std::ranges::count_if(by_use_, is_sole) < count) return std::nullopt;
  std::vector<int32_t> let_go;
  for (auto next = by_use_.begin(); count > 0;) {
    Node& node = **next++;  // what is below it stands before it
    if (!is_sole(&node)) continue;
    const auto before = std::ssize(let_go);
    Remove(node, let_go);
    count -= std::count_if(let_go.begin() + before, let_go.end(), sole);
  }
  return let_go;
}

std::vector<int32_t> PrefixIndex::pages() const {
  std::vector<int32_t> pages;
  pages.reserve(by_use_.size());
  for (const Node* node : by_use_) pages.push_back(node->page);
  return pages;
}

}  // namespace baton::engine
