#include "router/tokenizer/detokenizer.h"

#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "router/tokenizer/utf8.h"
#include "tests/router/tokenizer/test_files.h"

namespace baton::router {
namespace {

class DetokenizerTest : public ::testing::Test {
 protected:
  static Tokenizer LoadNeedle() { return Tokenizer::Load(testing::kNeedlePath).value(); }

  // The token of a single byte.
  int32_t ByteId(int byte) const {
    for (int32_t id = 0; id < tokenizer_.vocab_size(); ++id) {
      if (tokenizer_.TokenBytes(id) == std::string(1, static_cast<char>(byte))) return id;
    }
    return -1;
  }

  const Tokenizer tokenizer_ = LoadNeedle();
  const std::string replacement_{kReplacementCharacter};
};

TEST_F(DetokenizerTest, CodePointComesOutWithItsLastByte) {
  Detokenizer detokenizer(&tokenizer_, {});
  EXPECT_EQ(detokenizer.Push(ByteId('a')), "a");
  EXPECT_EQ(detokenizer.Push(ByteId(0xF0)), "");
  EXPECT_EQ(detokenizer.Push(ByteId(0x9F)), "");
  EXPECT_EQ(detokenizer.Push(ByteId(0x98)), "");
  EXPECT_EQ(detokenizer.Push(ByteId(0x80)), "😀");
  EXPECT_EQ(detokenizer.Flush(), "");
}

TEST_F(DetokenizerTest, BrokenSequenceIsReplacedAsSoonAsItIsCertain) {
  Detokenizer detokenizer(&tokenizer_, {});
  EXPECT_EQ(detokenizer.Push(ByteId(0xE4)), "");
  EXPECT_EQ(detokenizer.Push(ByteId('b')), replacement_ + "b");
  EXPECT_EQ(detokenizer.Push(ByteId(0x80)), replacement_);
}

TEST_F(DetokenizerTest, SaysWhereATokenBeginsInTheTextThatComes) {
  Detokenizer detokenizer(&tokenizer_, {});
  const auto begin = [&](int byte) {
    size_t bytes = 99;
    detokenizer.Push(ByteId(byte), &bytes);
    return bytes;
  };
  EXPECT_EQ(begin('a'), 0u);
  for (const int byte : {0xF0, 0x9F, 0x98, 0x80}) EXPECT_EQ(begin(byte), 0u);  // with the character
  EXPECT_EQ(begin(0xE4), 0u);
  EXPECT_EQ(begin('b'), replacement_.size());  // behind what the byte before became
  EXPECT_EQ(begin(0xE4), 0u);
  EXPECT_EQ(begin(0xE4), replacement_.size());  // and this one waits
}

TEST_F(DetokenizerTest, IncompleteTailIsOneReplacementCharacter) {
  Detokenizer detokenizer(&tokenizer_, {});
  EXPECT_EQ(detokenizer.Push(ByteId(0xF0)), "");
  EXPECT_EQ(detokenizer.Push(ByteId(0x9F)), "");
  EXPECT_EQ(detokenizer.Flush(), replacement_);
  EXPECT_EQ(detokenizer.Flush(), "");
}

TEST_F(DetokenizerTest, OutputsPutTogetherAreTheDecodedText) {
  std::mt19937 random(9);
  for (int round = 0; round < 300; ++round) {
    std::vector<int32_t> ids;
    for (int n = random() % 60; n > 0; --n) {
      ids.push_back(random() % 2 ? random() % 264 : static_cast<int32_t>(random() % 1030) - 3);
    }
    for (const bool skip_special : {false, true}) {
      Detokenizer detokenizer(&tokenizer_, {.skip_special = skip_special, .keep_ids = {}});
      std::string text;
      for (const int32_t id : ids) {
        const std::string piece = detokenizer.Push(id);
        ASSERT_TRUE(IsValidUtf8(piece));
        text += piece;
      }
      ASSERT_EQ(text + detokenizer.Flush(), tokenizer_.Decode(ids, skip_special));
    }
  }
}

TEST_F(DetokenizerTest, KeptSpecialTokensStayInTheText) {
  Detokenizer detokenizer(&tokenizer_, {.skip_special = true, .keep_ids = {6}});
  EXPECT_EQ(detokenizer.Push(5), "");
  EXPECT_EQ(detokenizer.Push(6), "</think>");
  EXPECT_EQ(detokenizer.Push(1), "");
}

}  // namespace
}  // namespace baton::router
