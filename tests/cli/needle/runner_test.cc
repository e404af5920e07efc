#include "cli/needle/runner.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace baton::cli {
namespace {

using ::baton::testing::IsOk;
using ::baton::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// Knows nothing, and breaks at a question.
class Broken final : public Subject {
 public:
  explicit Broken(int good) : good_(good) {}

  absl::StatusOr<Reply> Ask(const Messages&, const Conversation&) override {
    if (good_-- == 0) return absl::UnavailableError("gone");
    return Reply{.text = "I do not know", .prompt_tokens = 1, .handoff_bytes = 0, .report = {}};
  }

 private:
  int good_;
};

SubjectSpec Breaking(int good) {
  return {.name = "broken",
          .flags = {"--a=1"},
          .start = [good] { return std::make_unique<Broken>(good); },
          .start_explainer = nullptr};
}

TEST(RunnerTest, WhatWasAnsweredBeforeAFailureIsKept) {
  const TextMeter meter(nullptr);
  const std::vector<Cell> cells(5, Cell{.tokens = 400, .depth = 50});
  int asked = 0;
  const RunnerOptions options{.meter = &meter,
                              .tokenizer = nullptr,
                              .on_cell =
                                  [&](const std::string& subject, const CellResult& cell) {
                                    EXPECT_EQ(subject, "broken");
                                    EXPECT_EQ(cell.cell.tokens, 400);
                                    ++asked;
                                  },
                              .cancelled = nullptr};
  SubjectResult result;
  EXPECT_THAT(RunSubject(Breaking(3), cells, options, result),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("broken, 400 tokens"), HasSubstr("gone"))));
  EXPECT_EQ(result.name, "broken");
  EXPECT_THAT(result.flags, SizeIs(1));
  EXPECT_THAT(result.cells, SizeIs(3));
  EXPECT_EQ(asked, 3);
  EXPECT_THAT(RunSubject(Breaking(5), cells, options, result), IsOk());
  EXPECT_THAT(result.cells, SizeIs(5)) << "of this run only";
}

// As another build of baton-recall may.
class Strange final : public Subject {
 public:
  absl::StatusOr<Reply> Ask(const Messages&, const Conversation&) override {
    return Reply{.text = "", .prompt_tokens = 1, .handoff_bytes = 0, .report = {{"rows", {1}}}};
  }
};

TEST(RunnerTest, AReportThatExplainsNothingIsAnError) {
  BATON_ASSERT_OK_AND_ASSIGN(
      const router::Tokenizer tokenizer,
      router::Tokenizer::Load(BATON_SOURCE_DIR "/models/needle-17m/tokenizer.json"));
  const TextMeter meter(&tokenizer);
  const RunnerOptions options{
      .meter = &meter, .tokenizer = &tokenizer, .on_cell = nullptr, .cancelled = nullptr};
  const SubjectSpec spec{.name = "strange",
                         .flags = {},
                         .start = [] { return std::make_unique<Strange>(); },
                         .start_explainer = nullptr};
  SubjectResult result;
  EXPECT_THAT(RunSubject(spec, {Cell{.tokens = 400, .depth = 50}}, options, result),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("explains nothing")));
}

}  // namespace
}  // namespace baton::cli
