#include "cli/needle/explanation.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton::cli {
namespace {

using Json = nlohmann::json;

const std::vector<int32_t> kExpected = {7, 8, 9};

// An engine's report of three rows and one layer; the needle is one entry.
struct Report {
  std::vector<int32_t> tokens = {7, 8, 9};
  bool selected = true;
  bool selected_fp32 = true;
  double attention = 0.5;
  double overlap = 1;
  int damaged = 0;

  Json ToJson() const {
    Json rows = Json::array();
    for (size_t i = 0; i < tokens.size(); ++i) {
      const Json entry = {{"entry", 10},
                          {"selected", selected},
                          {"selected_fp32", selected_fp32},
                          {"rank", selected ? 3 : 900},
                          {"rank_fp32", selected_fp32 ? 2 : 800},
                          {"attention", attention}};
      rows.push_back({{"position", 100 + i},
                      {"token", tokens[i]},
                      {"layers", Json::array({{{"layer", 2},
                                               {"visible", 1000},
                                               {"selected", 512},
                                               {"overlap", overlap},
                                               {"needle", Json::array({entry})}}})}});
    }
    const Json stream = {{"stream", "index_key"}, {"records", 64}, {"different", damaged}};
    return {{"tokens", tokens}, {"rows", rows}, {"handoff", Json::array({stream})}};
  }
};

Verdict VerdictOf(const Report& report, bool served_found) {
  return Explain(report.ToJson(), kExpected, served_found).verdict;
}

TEST(ExplanationTest, TellsTheWaysOfLosingANeedleApart) {
  const std::vector<int32_t> wrong = {7, 3, 9};
  EXPECT_EQ(VerdictOf({}, true), Verdict::kFound);
  // The engine by itself finds it, so it was lost on the way.
  EXPECT_EQ(VerdictOf({}, false), Verdict::kLostInHandoff);
  EXPECT_EQ(VerdictOf({.tokens = wrong, .damaged = 3}, false), Verdict::kLostInHandoff);
  EXPECT_EQ(VerdictOf({.tokens = wrong, .selected = false, .attention = 0}, false),
            Verdict::kNotSelectedByIndex);
  EXPECT_EQ(VerdictOf({.tokens = wrong, .overlap = 0.4}, false), Verdict::kNotSelectedByIndex);
  EXPECT_EQ(VerdictOf({.tokens = wrong, .selected = false, .selected_fp32 = false, .attention = 0},
                      false),
            Verdict::kNotSelectedByModel);
  EXPECT_EQ(VerdictOf({.tokens = wrong, .attention = 0.001}, false), Verdict::kNotAttended);
  EXPECT_EQ(VerdictOf({.tokens = wrong}, false), Verdict::kAnsweredOtherwise);
}

TEST(ExplanationTest, LooksAtTheRowOfTheFirstWrongToken) {
  EXPECT_EQ(Explain(Report{.tokens = {7, 3, 9}}.ToJson(), kExpected, false).failing_row, 101);
  EXPECT_EQ(Explain(Report{.tokens = {7}}.ToJson(), kExpected, false).failing_row, 100);
  EXPECT_EQ(Explain(Report{}.ToJson(), kExpected, true).failing_row, -1);
}

TEST(ExplanationTest, SumsUpEachLayer) {
  const Explanation explanation =
      Explain(Report{.selected = false, .overlap = 0.75, .damaged = 3}.ToJson(), kExpected, true);
  ASSERT_EQ(explanation.layers.size(), 1u);
  const LayerExplanation& layer = explanation.layers[0];
  EXPECT_EQ(layer.needle_pairs, 3);
  EXPECT_EQ(layer.needle_selected, 0);
  EXPECT_EQ(layer.needle_selected_fp32, 3);
  EXPECT_EQ(layer.worst_rank, 900);
  EXPECT_DOUBLE_EQ(layer.overlap, 0.75);
  EXPECT_DOUBLE_EQ(explanation.MeanOverlap(), 0.75);
  EXPECT_THAT(explanation.Sentence(),
              ::testing::HasSubstr("index_key: 3 of 64 records arrived different"));
}

}  // namespace
}  // namespace baton::cli
