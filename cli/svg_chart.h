#pragma once

#include <string>
#include <utility>
#include <vector>

// Charts as complete SVG documents: functions of their input, readable on light and dark pages.

namespace baton::cli {

struct ChartLabels {
  std::string title;
  std::string x;  // with its unit: "prompt tokens"
  std::string y;
  bool log_x = false;  // x values must be > 0; those that are not are left out
};

struct Series {
  std::string name;
  std::vector<std::pair<double, double>> points;  // drawn in this order; NaN breaks the line
};

// Lines over two linear axes (x logarithmic on request), with ticks and a legend. The y axis begins
// at 0 unless there are negative values.
std::string LineChart(const ChartLabels& labels, const std::vector<Series>& series);

// For each name the share of samples that are at most x.
std::string CdfChart(const ChartLabels& labels,
                     const std::vector<std::pair<std::string, std::vector<double>>>& samples);

struct HeatMap {
  ChartLabels labels;
  std::vector<std::string> columns;         // left to right
  std::vector<std::string> rows;            // top to bottom
  std::vector<std::vector<double>> values;  // by row, then column; NaN: not measured
  double low = 0;                           // value of the coldest colour
  double high = 1;                          // of the hottest
};

// Cells in colours from red (low) to green (high), each with its value written in it.
std::string HeatMapChart(const HeatMap& map);

// Round values that divide [low, high] into about `count` steps of 1, 2 or 5 times a power of ten.
std::vector<double> Ticks(double low, double high, int count);

}  // namespace baton::cli
