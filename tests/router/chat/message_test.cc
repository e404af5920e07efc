#include "router/chat/message.h"

#include "gtest/gtest.h"
#include "router/chat/markup.h"

namespace baton::router {
namespace {

TEST(MessageTest, RolesAndTasksHaveTheirNames) {
  for (const char* name : {"system", "developer", "user", "assistant", "tool", "latest_reminder"}) {
    ASSERT_TRUE(ParseRole(name).has_value()) << name;
    EXPECT_EQ(RoleName(*ParseRole(name)), name);
  }
  EXPECT_FALSE(ParseRole("System").has_value());
  EXPECT_FALSE(ParseRole("").has_value());
  EXPECT_EQ(TaskToken(ParseTask("read_url").value()), "<｜read_url｜>");
  EXPECT_EQ(TaskToken(ParseTask("action").value()), "<｜action｜>");
  EXPECT_FALSE(ParseTask("search").has_value());
}

TEST(MessageTest, ContentPartsAreJoinedByAnEmptyLineAndOtherKindsAreNoted) {
  EXPECT_EQ(ContentText({}), "");
  EXPECT_EQ(ContentText({{"text", "a"}, {"image_url", ""}, {"text", "b"}}),
            "a\n\n[Unsupported image_url]\n\nb");
}

TEST(MessageTest, LeadingSystemMessageIsInsertedOnlyWhereThereIsNone) {
  std::vector<Message> messages = {TextMessage(Role::kUser, "hi")};
  LeadingSystemMessage(&messages).tools.push_back({{"name", "f"}});
  ASSERT_EQ(messages.size(), 2u);
  EXPECT_EQ(&LeadingSystemMessage(&messages), &messages.front());
  EXPECT_EQ(messages.size(), 2u);
  EXPECT_EQ(messages.front().tools.size(), 1u);
}

TEST(MarkupTest, NeedleTokenizerHasAllControlTokens) {
  const auto tokenizer =
      Tokenizer::Load(std::string(BATON_SOURCE_DIR) + "/models/needle-17m/tokenizer.json");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto ids = FindMarkup(*tokenizer);
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_EQ(ids->bos, 0);
  EXPECT_EQ(ids->eos, 1);
  EXPECT_EQ(ids->user, 3);
  EXPECT_EQ(ids->assistant, 4);
  EXPECT_EQ(ids->think_start, 5);
  EXPECT_EQ(ids->think_end, 6);
  EXPECT_EQ(ids->dsml, 7);
}

}  // namespace
}  // namespace baton::router
