#include "engine/cache/prefix_index.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

using Tokens = std::vector<int32_t>;

constexpr int kPageTokens = 3;

PrefixIndex::State StateAt(int64_t tokens) {
  return std::make_shared<const StateSnapshot>(0, tokens, std::vector<std::byte>());
}

bool Any(int32_t) { return true; }

TEST(PrefixIndexTest, MatchesWholePagesAndTheLongestBoundary) {
  PrefixIndex index(kPageTokens, {.pages = 9, .states = 9});
  EXPECT_THAT(index.Insert(Tokens{1, 2, 3, 4}, Tokens{7, 8}, StateAt(4)), ElementsAre(7));
  EXPECT_THAT(index.Insert(Tokens{1, 2, 3, 4, 5, 6}, Tokens{7, 8}, nullptr), ElementsAre(8));
  const PrefixIndex::Match match = index.Find(Tokens{1, 2, 3, 4, 5, 6, 7});
  EXPECT_THAT(match.pages, ElementsAre(7, 8));
  EXPECT_EQ(match.resume_tokens(), 4);
  EXPECT_THAT(index.Find(Tokens{1, 2, 3, 9, 5, 6}).pages, ElementsAre(7));
  EXPECT_EQ(index.Find(Tokens{1, 2, 3, 9, 5, 6}).resume_tokens(), 0);
  EXPECT_THAT(index.Find(Tokens{1, 2}).pages, IsEmpty());
  EXPECT_THAT(index.Find(Tokens{}).pages, IsEmpty());
}

TEST(PrefixIndexTest, LeavesOneTokenToCompute) {
  PrefixIndex index(kPageTokens, {.pages = 9, .states = 9});
  index.Insert(Tokens{1, 2}, Tokens{7}, StateAt(2));
  index.Insert(Tokens{1, 2, 3}, Tokens{7}, StateAt(3));
  EXPECT_EQ(index.Find(Tokens{1, 2, 3}).resume_tokens(), 2);
  EXPECT_THAT(index.Find(Tokens{1, 2, 3}).pages, ElementsAre(7)) << "all can be received";
  EXPECT_EQ(index.Find(Tokens{1, 2, 3, 4}).resume_tokens(), 3);
}

TEST(PrefixIndexTest, TheFirstToBringAPageKeepsIt) {
  PrefixIndex index(kPageTokens, {.pages = 9, .states = 9});
  index.Insert(Tokens{1, 2, 3}, Tokens{7}, nullptr);
  EXPECT_THAT(index.Insert(Tokens{1, 2, 3, 4, 5, 6}, Tokens{8, 9}, nullptr), ElementsAre(9));
  EXPECT_THAT(index.Find(Tokens{1, 2, 3, 4, 5, 6}).pages, ElementsAre(7, 9));
}

TEST(PrefixIndexTest, WhatWasUsedLongestAgoGoesFirstAndItsEndBeforeItsBeginning) {
  PrefixIndex index(kPageTokens, {.pages = 9, .states = 9});
  index.Insert(Tokens{1, 1, 1, 2, 2, 2}, Tokens{10, 11}, StateAt(6));
  index.Insert(Tokens{1, 1, 1, 3, 3, 3}, Tokens{10, 12}, StateAt(6));
  index.Use(Tokens{1, 1, 1, 2, 2, 2});
  EXPECT_THAT(*index.Evict(1, Any), ElementsAre(12));
  EXPECT_THAT(*index.Evict(1, Any), ElementsAre(11));
  EXPECT_EQ(index.states(), 0);
  EXPECT_FALSE(index.Evict(2, Any).has_value());
  EXPECT_THAT(index.pages(), ElementsAre(10));
}

TEST(PrefixIndexTest, APageThatIsHeldElsewhereGoesOnlyWithWhatItHangsOn) {
  PrefixIndex index(kPageTokens, {.pages = 9, .states = 9});
  index.Insert(Tokens{1, 1, 1, 2, 2, 2}, Tokens{10, 11}, nullptr);
  index.Insert(Tokens{5, 5, 5}, Tokens{12}, nullptr);
  const auto not_11 = [](int32_t page) { return page != 11; };
  EXPECT_THAT(*index.Evict(1, not_11), UnorderedElementsAre(10, 11));
  EXPECT_THAT(index.pages(), ElementsAre(12));
}

TEST(PrefixIndexTest, NothingIsKeptWithoutPages) {
  PrefixIndex index(kPageTokens, {});
  EXPECT_THAT(index.Insert(Tokens{1, 2, 3, 4}, Tokens{7, 8}, StateAt(4)), IsEmpty());
  EXPECT_EQ(index.Find(Tokens{1, 2, 3, 4, 5}).resume_tokens(), 0);
}

// The same, written down as two tables of token sequences with the time of their last use.
class Oracle {
 public:
  struct Page {
    int32_t id = 0;
    int64_t used = 0;
  };

  Oracle(int64_t pages, int64_t states) : max_pages_(pages), max_states_(states) {}

  static Tokens First(const Tokens& tokens, size_t count) {
    return {tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(count)};
  }
  Tokens Cached(const Tokens& tokens) const {
    size_t count = 0;
    while (count + kPageTokens <= tokens.size() && pages.contains(First(tokens, count + 3))) {
      count += kPageTokens;
    }
    return First(tokens, count);
  }
  Tokens Ids(const Tokens& tokens) const {
    Tokens ids;
    const Tokens cached = Cached(tokens);
    for (size_t end = kPageTokens; end <= cached.size(); end += kPageTokens) {
      ids.push_back(pages.at(First(cached, end)).id);
    }
    return ids;
  }
  Tokens Boundary(const Tokens& tokens) const {
    for (size_t count = tokens.size(); count-- > 1;) {
      if (states.contains(First(tokens, count))) return First(tokens, count);
    }
    return {};
  }
  void Touch(const Tokens& tokens) {
    for (size_t end = tokens.size() / kPageTokens * kPageTokens; end > 0; end -= kPageTokens) {
      pages.at(First(tokens, end)).used = ++now_;
    }
  }
  void Use(const Tokens& tokens) {
    const Tokens boundary = Boundary(tokens);
    if (!boundary.empty()) states.at(boundary) = ++now_;
    Touch(Cached(tokens));
  }
  void Insert(const Tokens& tokens, const Tokens& ids, bool state) {
    for (size_t i = 0; (i + 1) * kPageTokens <= tokens.size(); ++i) {
      pages.try_emplace(First(tokens, (i + 1) * kPageTokens), Page{ids[i], 0});
    }
    if (state) states[tokens] = ++now_;
    Touch(tokens);
  }
  void Remove(const Tokens& prefix) {
    const auto below = [&](const auto& entry) {
      return entry.first.size() >= prefix.size() && First(entry.first, prefix.size()) == prefix;
    };
    std::erase_if(pages, below);
    std::erase_if(states, below);
  }
  Tokens Oldest(const std::set<int32_t>& held) const {
    const Tokens* oldest = nullptr;
    for (const auto& [tokens, page] : pages) {
      if (held.contains(page.id)) continue;
      if (oldest == nullptr || page.used < pages.at(*oldest).used) oldest = &tokens;
    }
    return oldest == nullptr ? Tokens() : *oldest;
  }
  void Trim() {
    while (std::ssize(states) > max_states_) {
      states.erase(std::ranges::min_element(states, {}, [](const auto& s) { return s.second; }));
    }
    while (std::ssize(pages) > max_pages_) Remove(Oldest({}));
  }
  int64_t Sole(const std::set<int32_t>& held) const {
    return std::ranges::count_if(pages, [&](const auto& p) { return !held.contains(p.second.id); });
  }
  bool Evict(int64_t count, const std::set<int32_t>& held) {
    const int64_t before = Sole(held);
    if (before < count) return false;
    while (before - Sole(held) < count) Remove(Oldest(held));
    return true;
  }

  std::map<Tokens, Page> pages;
  std::map<Tokens, int64_t> states;

 private:
  const int64_t max_pages_;
  const int64_t max_states_;
  int64_t now_ = 0;
};

TEST(PrefixIndexTest, DoesWhatTheOracleDoes) {
  std::mt19937 random(5);
  const auto pick = [&](int64_t below) { return static_cast<int64_t>(random() % below); };
  PrefixIndex index(kPageTokens, {.pages = 12, .states = 7});
  Oracle oracle(12, 7);
  int32_t next_id = 0;
  int64_t resumed = 0;
  for (int round = 0; round < 6000; ++round) {
    SCOPED_TRACE(round);
    Tokens tokens;
    for (int64_t i = pick(16); i > 0; --i) tokens.push_back(pick(6) == 0 ? 1 : 0);
    std::set<int32_t> held;
    for (const int32_t page : index.pages()) {
      if (pick(3) == 0) held.insert(page);
    }
    const auto sole = [&](int32_t page) { return !held.contains(page); };
    switch (pick(4)) {
      case 0: {
        Tokens ids;
        for (size_t i = 0; i <= tokens.size() / kPageTokens; ++i) ids.push_back(next_id++);
        const bool state = !tokens.empty() && pick(2) == 0;
        index.Insert(tokens, ids, state ? StateAt(std::ssize(tokens)) : nullptr);
        index.Trim();
        oracle.Insert(tokens, ids, state);
        oracle.Trim();
        break;
      }
      case 1:
        index.Use(tokens);
        oracle.Use(tokens);
        break;
      case 2: {
        const int64_t count = pick(3);
        ASSERT_EQ(index.Evict(count, sole).has_value(), oracle.Evict(count, held));
        break;
      }
      default:
        break;
    }
    const PrefixIndex::Match match = index.Find(tokens);
    ASSERT_EQ(match.pages, oracle.Ids(tokens));
    ASSERT_EQ(match.resume_tokens(), std::ssize(oracle.Boundary(tokens)));
    ASSERT_EQ(index.HasBoundary(tokens), oracle.states.contains(tokens));
    ASSERT_EQ(std::ssize(index.pages()), std::ssize(oracle.pages));
    ASSERT_EQ(index.states(), std::ssize(oracle.states));
    resumed += match.resume_tokens() > 0;
  }
  EXPECT_GT(resumed, 1000);
}

}  // namespace
}  // namespace baton::engine
