#include "cli/needle/conversation.h"

#include <set>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "router/chat/renderer.h"
#include "tests/testing/status_matchers.h"

namespace baton::cli {
namespace {

using ::baton::testing::IsOk;

const router::Tokenizer& NeedleTokenizer() {
  static const auto* const tokenizer = [] {
    auto loaded = router::Tokenizer::Load(BATON_SOURCE_DIR "/models/needle-17m/tokenizer.json");
    EXPECT_THAT(loaded, IsOk());
    return new router::Tokenizer(*std::move(loaded));
  }();
  return *tokenizer;
}

std::vector<int32_t> PromptIds(const Conversation& conversation) {
  const std::vector<router::Message> messages = {
      router::TextMessage(router::Role::kUser, conversation.turns[0].text)};
  const auto prompt = router::RenderPrompt(messages, router::ChatPrompts{}, {});
  EXPECT_THAT(prompt, IsOk());
  return NeedleTokenizer().Encode(*prompt);
}

std::string Spelt(const std::vector<int32_t>& ids, int64_t begin, int64_t end) {
  return NeedleTokenizer().Decode(std::span(ids).subspan(begin, end - begin));
}

TEST(ConversationTest, HasTheLengthAskedForAndKnowsWhereItsNeedleIs) {
  const TextMeter meter(&NeedleTokenizer());
  for (const int64_t tokens : {100, 338, 943, 1850, 4509}) {
    for (const double depth : {0.0, 5.0, 50.0, 95.0, 100.0}) {
      SCOPED_TRACE(::testing::Message() << tokens << " tokens, depth " << depth);
      const auto made = MakeConversation({.tokens = tokens, .depth = depth, .seed = 3}, meter);
      ASSERT_THAT(made, IsOk());
      const std::vector<int32_t> ids = PromptIds(*made);
      EXPECT_NEAR(static_cast<double>(ids.size()), static_cast<double>(tokens), 3);
      EXPECT_EQ(Spelt(ids, made->answer_begin, made->answer_end), " " + made->turns[0].answer);
      EXPECT_TRUE(absl::StrContains(Spelt(ids, made->sentence_begin, made->answer_begin),
                                    "The secret passphrase for"));
      const double room = static_cast<double>(tokens) - 40;
      EXPECT_NEAR(static_cast<double>(made->sentence_begin), depth / 100 * room, 45);
    }
  }
}

TEST(ConversationTest, ANeedleStandsAtEveryResidueAskedFor) {
  const TextMeter meter(&NeedleTokenizer());
  for (const auto& [modulus, residue] :
       {std::pair{4, 0}, {4, 1}, {4, 2}, {4, 3}, {128, 127}, {128, 0}, {128, 1}}) {
    for (const double depth : {5.0, 50.0, 95.0}) {
      const auto made = MakeConversation(
          {.tokens = 943, .depth = depth, .modulus = modulus, .residue = residue, .seed = 5},
          meter);
      ASSERT_THAT(made, IsOk());
      EXPECT_EQ(made->sentence_begin % modulus, residue) << modulus << " at depth " << depth;
    }
  }
}

TEST(ConversationTest, IsTheSameForTheSameSeedOnly) {
  const TextMeter meter(&NeedleTokenizer());
  const Cell cell{.tokens = 500, .depth = 30, .distractors = 3, .seed = 8};
  Cell other = cell;
  other.seed = 9;
  const auto first = MakeConversation(cell, meter);
  ASSERT_THAT(first, IsOk());
  EXPECT_EQ(first->turns[0].text, MakeConversation(cell, meter)->turns[0].text);
  EXPECT_NE(first->turns[0].text, MakeConversation(other, meter)->turns[0].text);
}

TEST(ConversationTest, EveryTurnAsksForAPassphraseOfItsOwnThatIsInTheText) {
  const TextMeter meter(&NeedleTokenizer());
  const auto made = MakeConversation(
      {.tokens = 800, .depth = 50, .distractors = 4, .turns = 3, .seed = 2}, meter);
  ASSERT_THAT(made, IsOk());
  ASSERT_EQ(made->turns.size(), 3u);
  std::set<std::string> answers;
  for (const Conversation::Turn& turn : made->turns) {
    EXPECT_TRUE(absl::StrContains(made->turns[0].text, turn.answer));
    answers.insert(turn.answer);
  }
  EXPECT_EQ(answers.size(), 3u);
}

TEST(ConversationTest, WithoutATokenizerLengthsAreEstimates) {
  const auto made = MakeConversation({.tokens = 1000, .depth = 50, .seed = 4}, TextMeter(nullptr));
  ASSERT_THAT(made, IsOk());
  EXPECT_EQ(made->sentence_begin, -1);
  EXPECT_NEAR(static_cast<double>(PromptIds(*made).size()), 1000, 100);
}

TEST(ConversationTest, SaysWhenThereIsNoRoom) {
  const auto made = MakeConversation({.tokens = 70, .depth = 50, .distractors = 10},
                                     TextMeter(&NeedleTokenizer()));
  EXPECT_TRUE(absl::IsOutOfRange(made.status())) << made.status();
}

}  // namespace
}  // namespace baton::cli
