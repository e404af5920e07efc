#include "cli/needle/grid.h"

#include <cmath>

#include "cli/needle/output.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace baton::cli {
namespace {

using ::baton::testing::IsOk;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(GridTest, HasEveryCombinationAndSeedsOfItsOwn) {
  GridOptions options;
  options.lengths = {900, 300};
  options.depths = {5, 95};
  options.distractors = {0, 4};
  options.turns = {1, 2};
  options.align = 4;
  options.repeat = 2;
  const auto cells = MakeGrid(options);
  ASSERT_THAT(cells, IsOk());
  EXPECT_EQ(cells->size(), 2u * 2 * 2 * 2 * 4 * 2);
  EXPECT_EQ(cells->front().tokens, 300);
  EXPECT_EQ(cells->back().tokens, 900);
  EXPECT_NE((*cells)[0].seed, (*cells)[1].seed);
}

TEST(GridTest, ACellsTextDoesNotDependOnTheRestOfTheGrid) {
  GridOptions one;
  one.lengths = {900};
  one.depths = {95};
  GridOptions many = one;
  many.lengths = {300, 900};
  many.depths = {5, 95};
  EXPECT_EQ(MakeGrid(one)->front().seed, MakeGrid(many)->back().seed);
}

TEST(GridTest, NamesTheOptionThatMakesNoSense) {
  const auto message = [](auto change) {
    GridOptions options;
    change(options);
    return std::string(MakeGrid(options).status().message());
  };
  EXPECT_THAT(message([](GridOptions& o) { o.lengths = {10}; }), HasSubstr("--lengths"));
  EXPECT_THAT(message([](GridOptions& o) { o.depths = {101}; }), HasSubstr("--depths"));
  EXPECT_THAT(message([](GridOptions& o) { o.distractors = {1000}; }), HasSubstr("--distractors"));
  EXPECT_THAT(message([](GridOptions& o) { o.turns = {0}; }), HasSubstr("--turns"));
  EXPECT_THAT(message([](GridOptions& o) { o.align = 3; }), HasSubstr("--align"));
}

SubjectResult Result() {
  SubjectResult result{.name = "index fp8", .flags = {}, .cells = {}};
  for (const auto& [tokens, depth, found] :
       {std::tuple{300, 5.0, true}, {300, 5.0, false}, {300, 95.0, true}, {900, 5.0, false}}) {
    CellResult item;
    item.cell = {.tokens = tokens, .depth = depth};
    item.prompt_tokens = tokens;
    item.expected = "ZEBRA-4492-OMEGA";
    item.answer = found ? item.expected : "I do not know";
    item.found = found;
    result.cells.push_back(item);
  }
  return result;
}

TEST(GridTest, AHeatMapHoldsSharesAndGaps) {
  const HeatTable table = MakeHeatTable(Result());
  EXPECT_THAT(table.lengths, ElementsAre(300, 900));
  EXPECT_THAT(table.depths, ElementsAre(5, 95));
  EXPECT_THAT(table.share[0], ElementsAre(0.5, 0));
  EXPECT_EQ(table.share[1][0], 1);
  EXPECT_TRUE(std::isnan(table.share[1][1]));
}

TEST(GridTest, ReportsShowWhatWasMissed) {
  const std::string text = TerminalReport({Result()}, /*colour=*/false);
  EXPECT_THAT(text, HasSubstr("2 of 4 needles found"));
  EXPECT_THAT(text, HasSubstr("expected ZEBRA-4492-OMEGA, got \"I do not know\""));
  const std::string page = MarkdownReport({.results = {Result()}, .memory = {}, .command = "x"});
  EXPECT_THAT(page, HasSubstr("| 1 | index fp8 | 2 of 4 | 2/3 | 0/1 |"));
  EXPECT_THAT(page, HasSubstr("heat-1.svg"));
  EXPECT_THAT(HeatMapSvg(Result()), HasSubstr("prompt length (tokens)"));
  EXPECT_THAT(FoundSvg({Result(), Result()}), HasSubstr(">index fp8</text>"));
  EXPECT_EQ(OverlapSvg({Result()}), "");
}

TEST(GridTest, ThatNothingWasLostIsSaidWhereItWasToBeExplained) {
  SubjectResult result = Result();
  for (CellResult& item : result.cells) item.found = true;
  EXPECT_THAT(TerminalReport({result}, false), Not(HasSubstr("no needle was lost")));
  result.cells[0].explanation.emplace().layers = {{.layer = 2, .overlap = 0.75}};
  result.cells[1].explanation.emplace();
  EXPECT_THAT(TerminalReport({result}, false),
              HasSubstr("no needle was lost: at least 75.0 % of a selection is what FP32 selects, "
                        "every record arrived as it was sent\n"));
  result.cells[1].explanation->damaged_streams = {"index_key: 3 of 64 records"};
  EXPECT_THAT(TerminalReport({result}, false), HasSubstr("arrived different: index_key\n"));
  result.cells[3].found = false;
  EXPECT_THAT(TerminalReport({result}, false), Not(HasSubstr("no needle was lost")));
}

}  // namespace
}  // namespace baton::cli
