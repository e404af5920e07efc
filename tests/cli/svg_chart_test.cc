#include "cli/svg_chart.h"

#include <cmath>
#include <sstream>

#include "boost/property_tree/ptree.hpp"
#include "boost/property_tree/xml_parser.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton::cli {
namespace {

using boost::property_tree::ptree;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pointwise;

ptree Parsed(const std::string& svg) {
  std::istringstream stream(svg);
  ptree tree;
  boost::property_tree::read_xml(stream, tree);  // throws where it is no XML
  return tree.get_child("svg");
}

int CountOf(const ptree& svg, const std::string& element) {
  return static_cast<int>(svg.count(element));
}

TEST(SvgChartTest, TicksAreRoundAndLieWithinTheRange) {
  EXPECT_THAT(Ticks(0, 1, 5), Pointwise(DoubleNear(1e-12), {0.0, 0.2, 0.4, 0.6, 0.8, 1.0}));
  EXPECT_THAT(Ticks(-3, 104, 5), ElementsAre(0, 50, 100));
  EXPECT_THAT(Ticks(7, 7, 5), ElementsAre(7));
}

TEST(SvgChartTest, ALineChartHasALineALegendEntryAndTextForEachSeries) {
  const std::string chart = LineChart({.title = "a < b & \"c\"", .x = "tokens", .y = "ms"},
                                      {{"one", {{1, 2}, {2, 3}}}, {"two", {{1, 1}, {4, 5}}}});
  const ptree svg = Parsed(chart);
  EXPECT_EQ(CountOf(svg, "path"), 2);
  EXPECT_EQ(CountOf(svg, "rect"), 2);
  EXPECT_EQ(svg.get<std::string>("text"), "a < b & \"c\"");
  EXPECT_THAT(chart, HasSubstr("prefers-color-scheme: dark"));
}

TEST(SvgChartTest, NothingToDrawIsStillAChart) {
  for (const bool log_x : {false, true}) {
    const std::string chart =
        LineChart({.title = "empty", .x = "", .y = "", .log_x = log_x}, {{"none", {}}});
    EXPECT_EQ(CountOf(Parsed(chart), "path"), 1);
    EXPECT_THAT(chart, Not(HasSubstr("nan")));
    EXPECT_THAT(chart, Not(HasSubstr("inf")));
  }
  Parsed(CdfChart({.title = "", .x = "", .y = ""}, {}));
  Parsed(HeatMapChart({}));
}

TEST(SvgChartTest, WhatCannotBeDrawnBreaksTheLine) {
  const std::string chart = LineChart({.title = "", .x = "", .y = "", .log_x = true},
                                      {{"", {{1, 1}, {10, NAN}, {100, 1}, {0, 5}, {1000, 1}}}});
  const std::string path = Parsed(chart).get<std::string>("path.<xmlattr>.d");
  EXPECT_EQ(std::count(path.begin(), path.end(), 'M'), 3);
  EXPECT_EQ(std::count(path.begin(), path.end(), 'L'), 0);
}

TEST(SvgChartTest, ACdfRisesByOneStepASample) {
  const std::string path = Parsed(CdfChart({.title = "", .x = "", .y = ""}, {{"", {3, 1, 2}}}))
                               .get<std::string>("path.<xmlattr>.d");
  EXPECT_EQ(std::count(path.begin(), path.end(), 'L'), 5);
}

TEST(SvgChartTest, AHeatMapHasACellForEachValueAndLeavesUnmeasuredOnesBlank) {
  const std::string chart =
      HeatMapChart({.labels = {.title = "recall", .x = "length", .y = "depth"},
                    .columns = {"1k", "2k"},
                    .rows = {"0%", "50%"},
                    .values = {{1, 0.25}, {NAN, 1}}});
  const ptree svg = Parsed(chart);
  EXPECT_EQ(CountOf(svg, "rect"), 4);
  EXPECT_THAT(chart, HasSubstr(">0.25</text>"));
  EXPECT_THAT(chart, Not(HasSubstr("nan")));
}

double WidthWithRow(const std::string& name) {
  return Parsed(HeatMapChart({.labels = {}, .columns = {"1k"}, .rows = {name}, .values = {{1}}}))
      .get<double>("<xmlattr>.width");
}

TEST(SvgChartTest, AHeatMapHasRoomForTheNamesOfItsRows) {
  EXPECT_EQ(WidthWithRow("0%"), WidthWithRow("100%"));
  EXPECT_GT(WidthWithRow("what was put in on purpose"), WidthWithRow("0%") + 100);
}

}  // namespace
}  // namespace baton::cli
