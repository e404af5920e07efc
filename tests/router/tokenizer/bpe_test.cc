#include "router/tokenizer/bpe.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton::router {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Bytes as ids 0..255 and one token for each merge result, in order, from 256.
BpeModel::Spec SpecOf(const std::vector<BpeModel::Merge>& merges) {
  BpeModel::Spec spec;
  for (int byte = 0; byte < 256; ++byte) {
    spec.tokens.push_back({std::string(1, static_cast<char>(byte)), byte});
  }
  for (const BpeModel::Merge& merge : merges) {
    spec.merges.push_back(merge);
    spec.tokens.push_back({merge.left + merge.right, static_cast<int32_t>(spec.tokens.size())});
  }
  return spec;
}

std::vector<int32_t> Encode(const BpeModel& model, std::string_view piece) {
  BpeModel::Scratch scratch;
  std::vector<int32_t> ids;
  model.Encode(piece, &scratch, &ids);
  return ids;
}

// The definition: the best-ranked pair, leftmost first, until there is none.
std::vector<int32_t> EncodeByDefinition(const BpeModel::Spec& spec, const std::string& piece) {
  std::vector<std::string> symbols;
  for (const char c : piece) symbols.push_back(std::string(1, c));
  for (size_t rank = 0; rank < spec.merges.size();) {
    bool merged = false;
    for (size_t i = 0; i + 1 < symbols.size() && !merged; ++i) {
      if (symbols[i] != spec.merges[rank].left || symbols[i + 1] != spec.merges[rank].right)
        continue;
      symbols[i] += symbols[i + 1];
      symbols.erase(symbols.begin() + i + 1);
      merged = true;
    }
    rank = merged ? 0 : rank + 1;
  }
  std::vector<int32_t> ids;
  for (const std::string& symbol : symbols) {
    for (const BpeModel::Token& token : spec.tokens) {
      if (token.bytes == symbol) ids.push_back(token.id);
    }
  }
  return ids;
}

TEST(BpeTest, EmptyPieceHasNoIds) {
  const auto model = BpeModel::Create(SpecOf({}));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(Encode(*model, ""), IsEmpty());
  EXPECT_THAT(Encode(*model, std::string_view("\0\xff", 2)), ElementsAre(0, 255));
}

TEST(BpeTest, BetterRankWinsOverPositionAndLeftmostAmongEqual) {
  const auto model = BpeModel::Create(SpecOf({{"b", "c"}, {"a", "b"}, {"a", "a"}}));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(Encode(*model, "abc"), ElementsAre('a', 256));
  EXPECT_THAT(Encode(*model, "aaa"), ElementsAre(258, 'a'));
}

TEST(BpeTest, TokenThatMergesDoNotReachIsUsedOnlyWhenMergesAreIgnored) {
  BpeModel::Spec spec = SpecOf({{"a", "b"}});
  spec.tokens.push_back({"xyz", 300});
  auto model = BpeModel::Create(spec);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(Encode(*model, "xyz"), ElementsAre('x', 'y', 'z'));
  spec.ignore_merges = true;
  model = BpeModel::Create(spec);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(Encode(*model, "xyz"), ElementsAre(300));
  EXPECT_THAT(Encode(*model, "xyzab"), ElementsAre('x', 'y', 'z', 256));
}

TEST(BpeTest, RandomModelsEncodeAsTheDefinitionSays) {
  std::mt19937 random(11);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::string> symbols = {"a", "b", "c"};
    std::vector<BpeModel::Merge> merges;
    while (merges.size() < 12) {
      BpeModel::Merge merge = {symbols[random() % symbols.size()],
                               symbols[random() % symbols.size()]};
      const std::string result = merge.left + merge.right;
      if (std::find(symbols.begin(), symbols.end(), result) != symbols.end()) continue;
      symbols.push_back(result);
      merges.push_back(std::move(merge));
    }
    const BpeModel::Spec spec = SpecOf(merges);
    const auto model = BpeModel::Create(spec);
    ASSERT_TRUE(model.ok()) << model.status();
    for (int i = 0; i < 20; ++i) {
      std::string piece;
      for (int n = random() % 30; n > 0; --n) piece += "abcd"[random() % 4];
      ASSERT_EQ(Encode(*model, piece), EncodeByDefinition(spec, piece)) << piece;
    }
  }
}

TEST(BpeTest, MegabyteOfOneCharacterIsNoSpecialCase) {
  std::vector<BpeModel::Merge> merges;
  for (std::string half = "a"; half.size() <= 64; half += half) merges.push_back({half, half});
  const auto model = BpeModel::Create(SpecOf(merges));
  ASSERT_TRUE(model.ok()) << model.status();
  const auto ids = Encode(*model, std::string(1 << 20, 'a'));
  EXPECT_EQ(ids.size(), size_t{(1 << 20) / 128});
  EXPECT_EQ(ids.front(), 256 + 6);
}

TEST(BpeTest, MissingByteIsNamed) {
  BpeModel::Spec spec = SpecOf({});
  spec.tokens.erase(spec.tokens.begin() + 0x7F);
  EXPECT_THAT(std::string(BpeModel::Create(spec).status().message()), HasSubstr("0x7f"));
}

TEST(BpeTest, MergesOfUnknownTokensAreRefusedByNumber) {
  BpeModel::Spec spec = SpecOf({{"a", "b"}});
  spec.merges.push_back({"ab", "c"});
  EXPECT_THAT(std::string(BpeModel::Create(spec).status().message()),
              HasSubstr("merge 1: \"abc\""));
}

TEST(BpeTest, RepeatedMergeIsRefused) {
  BpeModel::Spec spec = SpecOf({{"a", "b"}});
  spec.merges.push_back({"a", "b"});
  EXPECT_THAT(std::string(BpeModel::Create(spec).status().message()), HasSubstr("merged before"));
}

}  // namespace
}  // namespace baton::router
