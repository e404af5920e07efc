#include "engine/cache/ledger.h"

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <utility>

#include "tests/testing/status_matchers.h"

namespace baton::engine {
namespace {

using ::baton::testing::IsOk;
using ::baton::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kPageTokens = 4;

absl::StatusOr<CacheLedger::Opening> Open(CacheLedger& ledger, int64_t pages, PageList& list,
                                          const std::vector<int32_t>& prompt = {},
                                          PrefixUse use = PrefixUse::kCompute) {
  return ledger.Open(prompt, use, pages, list);
}

std::vector<int32_t> Tokens(int64_t count, int32_t first = 0) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = first + static_cast<int32_t>(i);
  return tokens;
}

PrefixIndex::State StateAt(int64_t tokens) {
  return std::make_shared<const StateSnapshot>(0, tokens, std::vector<std::byte>());
}

std::vector<int32_t> Ids(const PageList& list) { return {list.ids().begin(), list.ids().end()}; }

TEST(CacheLedgerTest, OpenTakesPagesAndASlotOrNothing) {
  CacheLedger ledger({.pages = 10, .slots = 2});
  PageList a(10), b(10), c(10);
  EXPECT_EQ(Open(ledger, 6, a)->slot, 0);
  EXPECT_THAT(Open(ledger, 5, b), StatusIs(absl::StatusCode::kResourceExhausted,
                                           HasSubstr("5 cache pages wanted, 4 of 10 are free")));
  EXPECT_EQ(b.size(), 0);
  EXPECT_EQ(ledger.usage().slots_free, 1);
  EXPECT_EQ(Open(ledger, 4, b)->slot, 1);
  EXPECT_THAT(Open(ledger, 0, c), StatusIs(absl::StatusCode::kResourceExhausted,
                                           HasSubstr("all 2 state slots are taken")));
}

TEST(CacheLedgerTest, UsageIsRecountedFromLiveSequences) {
  CacheLedger ledger({.pages = 10, .slots = 4});
  PageList a(10), b(10);
  const int slot = Open(ledger, 3, a)->slot;
  EXPECT_THAT(Open(ledger, 2, b), IsOk());
  EXPECT_THAT(ledger.Grow(1, a), IsOk());
  const CacheUsage usage = ledger.usage();
  EXPECT_EQ(usage.pages_total, 10);
  EXPECT_EQ(usage.pages_free, 4);
  EXPECT_EQ(usage.pages_sequences, 6);
  EXPECT_EQ(usage.slots_total, 4);
  EXPECT_EQ(usage.slots_free, 2);
  EXPECT_THAT(ledger.Audit(), IsOk());
  ledger.Close(slot);
  EXPECT_EQ(ledger.usage().pages_sequences, 2);
  EXPECT_EQ(ledger.usage().pages_free, 8);
  EXPECT_THAT(ledger.Audit(), IsOk());
}

TEST(CacheLedgerTest, GrowthThatFailsLeavesTheListAsItWas) {
  CacheLedger ledger({.pages = 4, .slots = 2});
  PageList a(10);
  EXPECT_THAT(Open(ledger, 3, a), IsOk());
  EXPECT_THAT(ledger.Grow(2, a), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(a.size(), 3);
  EXPECT_EQ(ledger.usage().pages_free, 1);
}

TEST(CacheLedgerTest, AuditNoticesPagesThatASequenceLostSightOf) {
  CacheLedger ledger({.pages = 4, .slots = 2});
  PageList a(10), stranger(10);
  EXPECT_THAT(Open(ledger, 2, a), IsOk());
  EXPECT_THAT(ledger.Grow(1, stranger), IsOk());
  EXPECT_THAT(ledger.Audit(), StatusIs(absl::StatusCode::kInternal, HasSubstr("page 2 leaked")));
}

TEST(CacheLedgerDeathTest, ASlotIsClosedOnce) {
  CacheLedger ledger({.pages = 4, .slots = 2});
  PageList a(10);
  const int slot = Open(ledger, 1, a)->slot;
  ledger.Close(slot);
  EXPECT_DEATH(ledger.Close(slot), "slot 0 is not live");
}

// --- with a prefix index

CacheLedger::Options WithPrefix(int64_t pages, int slots) {
  return {.pages = pages,
          .slots = slots,
          .page_tokens = kPageTokens,
          .prefix = {.pages = pages, .states = 4}};
}

TEST(CacheLedgerTest, WhatIsKeptOutlivesItsSequenceAndIsSharedByTheNext) {
  CacheLedger ledger(WithPrefix(6, 2));
  PageList a(6), b(6);
  const int slot = Open(ledger, 3, a, Tokens(10))->slot;
  ledger.Keep(Tokens(10), a, StateAt(10));
  EXPECT_EQ(ledger.usage().pages_prefix, 0) << "the sequence holds them too";
  ledger.Close(slot);
  EXPECT_EQ(ledger.usage().pages_prefix, 2) << "full pages";
  EXPECT_EQ(ledger.usage().pages_free, 4);
  const absl::StatusOr<CacheLedger::Opening> next = Open(ledger, 4, b, Tokens(14));
  ASSERT_THAT(next, IsOk());
  EXPECT_EQ(next->shared_tokens, 8);
  EXPECT_EQ(next->state->tokens(), 10);
  EXPECT_THAT(Ids(b), ElementsAre(0, 1, ::testing::_, ::testing::_));
  EXPECT_EQ(ledger.usage().pages_sequences, 4);
  EXPECT_EQ(ledger.usage().pages_prefix, 0);
  EXPECT_THAT(ledger.Audit(), IsOk());
}

TEST(CacheLedgerTest, ComputingSharesOnlyWhatLiesBeforeABoundary) {
  CacheLedger ledger(WithPrefix(16, 4));
  PageList a(16), compute(16), receive(16);
  EXPECT_THAT(Open(ledger, 4, a, Tokens(16)), IsOk());
  ledger.Keep(std::vector<int32_t>(Tokens(5)), a, StateAt(5));
  ledger.Keep(Tokens(16), a, nullptr);
  const auto computing = Open(ledger, 5, compute, Tokens(20));
  EXPECT_EQ(computing->shared_tokens, 4);
  EXPECT_EQ(computing->state->tokens(), 5);
  EXPECT_EQ(computing->matched_tokens, 16);
  const auto receiving = Open(ledger, 5, receive, Tokens(20), PrefixUse::kReceive);
  EXPECT_EQ(receiving->shared_tokens, 16);
  EXPECT_EQ(receiving->state, nullptr) << "of no use behind the pages";
}

TEST(CacheLedgerTest, PagesAreTakenFromTheIndexBeforeAnybodyIsRefused) {
  CacheLedger ledger(WithPrefix(6, 2));
  PageList a(6), b(6), c(6);
  const int slot = Open(ledger, 4, a, Tokens(16))->slot;
  ledger.Keep(Tokens(16), a, nullptr);
  ledger.Close(slot);
  EXPECT_EQ(ledger.usage().pages_available(), 6);
  EXPECT_THAT(Open(ledger, 5, b, Tokens(16, 500)), IsOk());
  EXPECT_EQ(ledger.prefix_pages_evicted(), 3);
  EXPECT_THAT(Open(ledger, 2, c), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(ledger.usage().pages_prefix, 1) << "nothing was evicted in vain";
  EXPECT_THAT(ledger.Audit(), IsOk());
}

// Sequences come, share, write, grow, keep and go in any order. Nobody's tokens ever change under
// him, and what is counted adds up after every step.
TEST(CacheLedgerTest, RandomLivesShareWithoutDisturbingEachOther) {
  struct Live {
    std::vector<int32_t> tokens;
    std::unique_ptr<PageList> list;
  };
  std::mt19937 random(11);
  const auto pick = [&](int64_t below) { return static_cast<int64_t>(random() % below); };
  CacheLedger ledger(
      {.pages = 24, .slots = 5, .page_tokens = kPageTokens, .prefix = {.pages = 17, .states = 6}});
  std::vector<std::vector<int32_t>> written(24, std::vector<int32_t>(kPageTokens, -1));
  std::map<int, Live> live;
  const auto write = [&](Live& sequence, int64_t from) {
    for (int64_t at = from; at < std::ssize(sequence.tokens); ++at) {
      written[static_cast<size_t>(sequence.list->ids()[at / kPageTokens])][at % kPageTokens] =
          sequence.tokens[at];
    }
  };
  int64_t hits = 0;
  for (int round = 0; round < 4000; ++round) {
    const int64_t action = pick(6);
    if (action <= 1) {
      Live fresh{.tokens = {}, .list = std::make_unique<PageList>(24)};
      for (int64_t i = 1 + pick(30); i > 0; --i) fresh.tokens.push_back(pick(8) == 0 ? 1 : 0);
      const auto opened =
          Open(ledger, (std::ssize(fresh.tokens) + kPageTokens - 1) / kPageTokens, *fresh.list,
               fresh.tokens, action == 0 ? PrefixUse::kCompute : PrefixUse::kReceive);
      if (opened.ok()) {
        hits += opened->shared_tokens > 0;
        write(fresh, opened->shared_tokens);
        live.emplace(opened->slot, std::move(fresh));
      }
    } else if (!live.empty()) {
      const auto chosen = std::next(live.begin(), pick(std::ssize(live)));
      auto& [slot, sequence] = *chosen;
      const int64_t length = std::ssize(sequence.tokens);
      if (action == 2 && ledger.Grow(1, *sequence.list).ok()) {
        sequence.tokens.resize(static_cast<size_t>(length + 1 + pick(3)), 2);
        sequence.tokens.resize(std::min<size_t>(
            sequence.tokens.size(), static_cast<size_t>(sequence.list->size() * kPageTokens)));
        write(sequence, length);
      } else if (action == 3) {
        const std::vector<int32_t> kept(sequence.tokens.begin(),
                                        sequence.tokens.begin() + 1 + pick(length));
        ledger.Keep(kept, *sequence.list, pick(3) > 0 ? StateAt(std::ssize(kept)) : nullptr);
      } else if (action >= 4) {
        ledger.Close(slot);
        live.erase(chosen);
      }
    }
    for (const auto& [slot, sequence] : live) {
      for (int64_t at = 0; at < std::ssize(sequence.tokens); ++at) {
        const auto page = static_cast<size_t>(sequence.list->ids()[at / kPageTokens]);
        ASSERT_EQ(written[page][at % kPageTokens], sequence.tokens[at]) << "round " << round;
      }
    }
    ASSERT_THAT(ledger.Audit(), IsOk()) << "round " << round;
    const CacheUsage usage = ledger.usage();
    ASSERT_EQ(usage.pages_free + usage.pages_sequences + usage.pages_prefix, usage.pages_total);
    ASSERT_LE(usage.pages_prefix, 17);
  }
  EXPECT_GT(hits, 300);
  EXPECT_GT(ledger.prefix_pages_evicted(), 300);
}

}  // namespace
}  // namespace baton::engine
