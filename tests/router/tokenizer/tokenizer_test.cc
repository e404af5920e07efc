#include "router/tokenizer/tokenizer.h"

#include <algorithm>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "router/tokenizer/utf8.h"
#include "tests/router/tokenizer/test_files.h"

namespace baton::router {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::kNeedlePath;
using testing::SmallTokenizerFile;

Tokenizer LoadNeedle() {
  auto tokenizer = Tokenizer::Load(kNeedlePath);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
}

Tokenizer ParseFile(const json& file) {
  auto tokenizer = Tokenizer::Parse(file.dump());
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
}

TEST(TokenizerTest, GoldenStringsHaveTheIdsOfTheReferenceImplementation) {
  const Tokenizer tokenizer = LoadNeedle();
  json golden;
  std::ifstream(std::string(BATON_SOURCE_DIR) + "/tests/router/tokenizer/golden_needle-17m.json") >>
      golden;
  ASSERT_GE(golden.size(), 300u);
  for (const json& entry : golden) {
    const auto text = entry.at("text").get<std::string>();
    const auto ids = entry.at("ids").get<std::vector<int32_t>>();
    EXPECT_EQ(tokenizer.Encode(text, AddedTokenText::kMatch), ids) << text;
    EXPECT_EQ(tokenizer.Decode(ids), text);
    EXPECT_EQ(tokenizer.Decode(tokenizer.Encode(text)), text);
  }
}

TEST(TokenizerTest, AbsentFileIsNamed) {
  const auto tokenizer = Tokenizer::Load("/nonexistent/tokenizer.json");
  EXPECT_EQ(tokenizer.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(tokenizer.status().message()), HasSubstr("/nonexistent/tokenizer.json"));
}

TEST(TokenizerTest, AddedTokensAreTokensOnlyWhereTheCallerSaysSo) {
  const Tokenizer tokenizer = LoadNeedle();
  const std::string text = "a<｜User｜>b</think>";
  EXPECT_THAT(tokenizer.Encode(text, AddedTokenText::kMatch),
              ElementsAre(tokenizer.Encode("a")[0], 3, tokenizer.Encode("b")[0], 6));
  for (const int32_t id : tokenizer.Encode(text)) EXPECT_GE(id, 8);
  EXPECT_EQ(tokenizer.Decode(tokenizer.Encode(text)), text);
}

TEST(TokenizerTest, LongestAddedTokenWinsAndNormalizedOnesComeSecond) {
  json file = SmallTokenizerFile();
  json token = file["added_tokens"][0];
  const auto add = [&](const char* content, int id, bool normalized) {
    token["content"] = content;
    token["id"] = id;
    token["normalized"] = normalized;
    file["added_tokens"].push_back(token);
  };
  add("<s>x", 260, false);
  add("y<s>", 261, true);  // loses to <s>, which is found first in the whole text
  add("yy", 262, true);
  const Tokenizer tokenizer = ParseFile(file);
  EXPECT_THAT(tokenizer.Encode("<s>x<s>", AddedTokenText::kMatch), ElementsAre(260, 258));
  EXPECT_THAT(tokenizer.Encode("yyy<s>", AddedTokenText::kMatch), ElementsAre(262, 'y', 258));
}

TEST(TokenizerTest, CutsBetweenSegmentsChangeNoId) {
  const Tokenizer tokenizer = LoadNeedle();
  const std::string text = "The secret passphrase for Oslo is ZEBRA-4492-OMEGA.\n\n你好, 12345  x";
  const auto whole = tokenizer.Encode(text);
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    const std::vector<TextSegment> segments = {{text.substr(0, cut), AddedTokenText::kPlain},
                                               {text.substr(cut), AddedTokenText::kMatch}};
    EXPECT_EQ(tokenizer.Encode(segments), whole) << cut;
  }
}

TEST(TokenizerTest, NoAddedTokenIsSeenAcrossACut) {
  const Tokenizer tokenizer = LoadNeedle();
  const std::vector<TextSegment> segments = {{"</thi", AddedTokenText::kMatch},
                                             {"nk>", AddedTokenText::kPlain},
                                             {"</think>", AddedTokenText::kMatch}};
  const auto ids = tokenizer.Encode(segments);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 6), 1);
  EXPECT_EQ(ids.back(), 6);
}

TEST(TokenizerTest, MalformedUtf8IsReadAsReplacementCharacters) {
  const Tokenizer tokenizer = LoadNeedle();
  std::mt19937 random(5);
  for (int round = 0; round < 500; ++round) {
    std::string bytes;
    for (int n = random() % 40; n > 0; --n) {
      bytes.push_back(static_cast<char>(random() % 3 ? 0x80 + random() % 0x80 : random() % 0x80));
    }
    const std::string sanitized = SanitizeUtf8(bytes);
    ASSERT_EQ(tokenizer.Encode(bytes), tokenizer.Encode(sanitized));
    ASSERT_EQ(tokenizer.Decode(tokenizer.Encode(bytes)), sanitized);
  }
}

TEST(TokenizerTest, LongRunsOfOneCharacterKeepTheirText) {
  const Tokenizer tokenizer = LoadNeedle();
  for (const char* unit : {"a", " ", "\n", "!", "1", "é", "你", "\x01", "<", " \n"}) {
    std::string text;
    while (text.size() < 300'000) text += unit;
    EXPECT_EQ(tokenizer.Decode(tokenizer.Encode(text, AddedTokenText::kMatch)), text) << unit;
  }
}

TEST(TokenizerTest, SpecialTokensCanBeLeftOutOfTheText) {
  const Tokenizer tokenizer = LoadNeedle();
  const auto ids = tokenizer.Encode("<｜User｜>hi<｜end▁of▁sentence｜>", AddedTokenText::kMatch);
  EXPECT_EQ(tokenizer.Decode(ids), "<｜User｜>hi<｜end▁of▁sentence｜>");
  EXPECT_EQ(tokenizer.Decode(ids, /*skip_special=*/true), "hi");
}

TEST(TokenizerTest, UnknownIdsHaveNoText) {
  const Tokenizer tokenizer = LoadNeedle();
  for (const int32_t id : {-1, 1024, 129279, INT32_MAX, INT32_MIN}) {
    EXPECT_EQ(tokenizer.TokenBytes(id), "");
    EXPECT_FALSE(tokenizer.IsSpecial(id));
  }
  const std::vector<int32_t> ids = {-1, 5000};
  EXPECT_EQ(tokenizer.Decode(ids), "");
}

TEST(TokenizerTest, AddedTokensAreFoundByContent) {
  const Tokenizer tokenizer = LoadNeedle();
  EXPECT_EQ(tokenizer.AddedTokenId("<think>"), 5);
  EXPECT_EQ(tokenizer.AddedTokenId("think"), std::nullopt);
  EXPECT_EQ(tokenizer.AddedTokenId(""), std::nullopt);
}

TEST(TokenizerTest, ModelWithFewerRowsThanIdsIsRefused) {
  const Tokenizer tokenizer = LoadNeedle();
  EXPECT_TRUE(tokenizer.CheckModelVocabulary(1024).ok());
  EXPECT_TRUE(tokenizer.CheckModelVocabulary(129280).ok());
  EXPECT_THAT(std::string(tokenizer.CheckModelVocabulary(1023).message()), HasSubstr("1023"));
}

TEST(TokenizerTest, HashIsFnv1aOfTheFile) {
  const std::string text = SmallTokenizerFile().dump();
  uint64_t expected = 14695981039346656037u;
  for (const char c : text) expected = (expected ^ static_cast<uint8_t>(c)) * 1099511628211u;
  EXPECT_EQ(Tokenizer::Parse(text)->hash(), expected);
  EXPECT_NE(Tokenizer::Parse(text + " ")->hash(), expected);
}

TEST(TokenizerTest, ThreadsMayEncodeAtOnce) {
  const Tokenizer tokenizer = LoadNeedle();
  const std::string text = "The baker walked past the wooden bridge before sunrise.";
  const auto expected = tokenizer.Encode(text);
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < 200; ++n) EXPECT_EQ(tokenizer.Encode(text), expected);
    });
  }
  for (std::jthread& thread : threads) thread.join();
}

TEST(TokenizerTest, EmptyTextHasNoIds) {
  const Tokenizer tokenizer = LoadNeedle();
  EXPECT_THAT(tokenizer.Encode(""), IsEmpty());
  EXPECT_THAT(tokenizer.Encode(std::vector<TextSegment>{}), IsEmpty());
}

}  // namespace
}  // namespace baton::router
