#include "cli/svg_chart.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace baton::cli {
namespace {

constexpr double kWidth = 760, kHeight = 420;
constexpr double kLeft = 72, kRight = 24, kTop = 44, kBottom = 56;
constexpr double kCharacter = 7;  // width; a guess
// Colours that differ for most kinds of colour vision, on white and on near-black.
constexpr std::array<const char*, 8> kColours = {"#3b82d6", "#e07b39", "#2f9e6e", "#c2499d",
                                                 "#a08a1c", "#7a6fe0", "#d24b4b", "#3aa6b9"};

std::string Escaped(const std::string& text) {
  return absl::StrReplaceAll(text,
                             {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

std::string Text(double x, double y, const std::string& attributes, const std::string& text) {
  return absl::StrFormat("<text x=\"%.1f\" y=\"%.1f\" %s>%s</text>\n", x, y, attributes,
                         Escaped(text));
}

std::string Line(double x1, double y1, double x2, double y2, const char* style) {
  return absl::StrFormat("<line class=\"%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n",
                         style, x1, y1, x2, y2);
}

std::string Document(double width, double height, const std::string& body) {
  return absl::StrFormat(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" "
             "height=\"%.0f\">\n",
             width, height, width, height) +
         "<style>\n"
         "svg { background: #ffffff; font: 12px system-ui, sans-serif; }\n"
         "text { fill: #24292f; } .title { font-size: 15px; font-weight: 600; }\n"
         ".axis { stroke: #57606a; } .grid { stroke: #d0d7de; stroke-width: 0.6; }\n"
         ".line { fill: none; stroke-width: 2; stroke-linejoin: round; } .cell { fill: #101418; }\n"
         "@media (prefers-color-scheme: dark) {\n"
         "svg { background: #0d1117; } text { fill: #e6edf3; } .axis { stroke: #8b949e; }\n"
         ".grid { stroke: #30363d; } .cell { fill: #101418; }\n"
         "}\n</style>\n" +
         body + "</svg>\n";
}

std::string Frame(const ChartLabels& labels, double left, double width, double height) {
  return Text(left, 26, "class=\"title\"", labels.title) +
         Text((left + width - kRight) / 2, height - 12, "text-anchor=\"middle\"", labels.x) +
         absl::StrFormat(
             "<text transform=\"translate(16 %.1f) rotate(-90)\" "
             "text-anchor=\"middle\">%s</text>\n",
             (kTop + height - kBottom) / 2, Escaped(labels.y));
}

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void Include(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  // Something to draw on even without points, or with all of them on one line.
  void MakeProper() {
    if (!(low <= high)) *this = {0, 1};
    if (low == high) high = low + (low == 0 ? 1 : std::abs(low) * 0.5);
  }
};

std::string Label(double value) {
  const double size = std::abs(value);
  if (size >= 1e4 && size < 1e15) {
    static constexpr const char* kUnits[] = {"", "k", "M", "G", "T"};
    const int unit = static_cast<int>(std::log10(size) / 3 + 1e-9);
    return absl::StrFormat("%g%s", value / std::pow(1000, unit), kUnits[unit]);
  }
  return absl::StrFormat("%.6g", value);
}

std::vector<double> LogTicks(double low, double high) {
  std::vector<double> ticks;
  const bool dense = std::log10(high / low) < 3;
  for (double decade = std::pow(10, std::floor(std::log10(low))); decade <= high; decade *= 10) {
    for (const double step : {1.0, 2.0, 5.0}) {
      const double tick = decade * step;
      if (tick >= low * 0.999 && tick <= high * 1.001 && (dense || step == 1))
        ticks.push_back(tick);
    }
  }
  return ticks;
}

// Where values lie on the page.
struct Axes {
  Range x, y;
  bool log_x = false;

  double X(double value) const {
    const double share = log_x ? std::log(value / x.low) / std::log(x.high / x.low)
                               : (value - x.low) / (x.high - x.low);
    return kLeft + share * (kWidth - kLeft - kRight);
  }
  double Y(double value) const {
    return kHeight - kBottom - (value - y.low) / (y.high - y.low) * (kHeight - kTop - kBottom);
  }
};

bool Drawable(const std::pair<double, double>& point, bool log_x) {
  return std::isfinite(point.first) && std::isfinite(point.second) && (!log_x || point.first > 0);
}

Axes AxesFor(const ChartLabels& labels, const std::vector<Series>& series) {
  Axes axes;
  axes.log_x = labels.log_x;
  for (const Series& line : series) {
    for (const auto& point : line.points) {
      if (!Drawable(point, labels.log_x)) continue;
      axes.x.Include(point.first);
      axes.y.Include(point.second);
    }
  }
  if (axes.y.low <= axes.y.high) axes.y.Include(0);
  if (labels.log_x && !(axes.x.low <= axes.x.high)) axes.x = {1, 10};
  axes.x.MakeProper();
  axes.y.MakeProper();
  const std::vector<double> ticks = Ticks(axes.y.low, axes.y.high, 6);
  if (ticks.size() > 1 && axes.y.high > ticks.back()) {  // room above the highest point
    axes.y.high = ticks.back() + (ticks[1] - ticks[0]);
  }
  return axes;
}

std::string Grid(const Axes& axes) {
  const double bottom = kHeight - kBottom, right = kWidth - kRight;
  std::string body;
  for (const double tick :
       axes.log_x ? LogTicks(axes.x.low, axes.x.high) : Ticks(axes.x.low, axes.x.high, 8)) {
    body += Line(axes.X(tick), kTop, axes.X(tick), bottom, "grid") +
            Text(axes.X(tick), bottom + 18, "text-anchor=\"middle\"", Label(tick));
  }
  for (const double tick : Ticks(axes.y.low, axes.y.high, 6)) {
    body += Line(kLeft, axes.Y(tick), right, axes.Y(tick), "grid") +
            Text(kLeft - 8, axes.Y(tick) + 4, "text-anchor=\"end\"", Label(tick));
  }
  return body + Line(kLeft, bottom, right, bottom, "axis") +
         Line(kLeft, kTop, kLeft, bottom, "axis");
}

std::string Path(const Series& series, const Axes& axes, const char* colour) {
  std::string steps;
  bool pen_down = false;
  for (const auto& point : series.points) {
    const bool drawable = Drawable(point, axes.log_x);
    if (drawable) {
      absl::StrAppendFormat(&steps, "%s%.1f %.1f", pen_down ? "L" : "M", axes.X(point.first),
                            axes.Y(point.second));
    }
    pen_down = drawable;
  }
  return absl::StrFormat("<path class=\"line\" stroke=\"%s\" d=\"%s\"/>\n", colour, steps);
}

// One row above the plot, from the right.
std::string Legend(const std::vector<Series>& series) {
  constexpr double kSwatch = 14;
  std::string body;
  double x = kWidth - kRight;
  for (size_t i = series.size(); i-- > 0;) {
    if (series[i].name.empty()) continue;
    body += Text(x, 26, "text-anchor=\"end\"", series[i].name);
    x -= kCharacter * static_cast<double>(series[i].name.size()) + kSwatch + 6;
    body += absl::StrFormat("<rect x=\"%.1f\" y=\"20\" width=\"%.0f\" height=\"4\" fill=\"%s\"/>\n",
                            x, kSwatch, kColours[i % kColours.size()]);
    x -= 16;
  }
  return body;
}

// Red, yellow, green. Hexadecimal, since not every renderer of SVG reads other notations.
std::string CellColour(double share) {
  if (!std::isfinite(share)) return "#8b949e";
  using Rgb = std::array<double, 3>;
  constexpr std::array<Rgb, 3> kAnchors = {{{208, 94, 84}, {212, 192, 92}, {98, 184, 108}}};
  const double at = 2 * std::clamp(share, 0.0, 1.0);
  const size_t from = at < 1 ? 0 : 1;
  const double weight = at - static_cast<double>(from);
  std::string colour = "#";
  for (size_t i = 0; i < 3; ++i) {
    const double value = kAnchors[from][i] + weight * (kAnchors[from + 1][i] - kAnchors[from][i]);
    absl::StrAppendFormat(&colour, "%02x", static_cast<int>(std::lround(value)));
  }
  return colour;
}

}  // namespace

std::vector<double> Ticks(double low, double high, int count) {
  if (!(high > low) || count < 1) return {low};
  const double raw = (high - low) / count;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  double step = power * 10;
  for (const double factor : {5.0, 2.0, 1.0}) {
    if (power * factor >= raw * (1 - 1e-9)) step = power * factor;
  }
  std::vector<double> ticks;
  // Each tick is computed from its index: sums would drift.
  for (double index = std::ceil(low / step - 1e-9); index * step <= high + step * 1e-9; ++index) {
    ticks.push_back(index * step + 0.0);  // no "-0"
  }
  return ticks;
}

std::string LineChart(const ChartLabels& labels, const std::vector<Series>& series) {
  const Axes axes = AxesFor(labels, series);
  std::string body = Frame(labels, kLeft, kWidth, kHeight) + Grid(axes);
  for (size_t i = 0; i < series.size(); ++i) {
    body += Path(series[i], axes, kColours[i % kColours.size()]);
  }
  return Document(kWidth, kHeight, body + Legend(series));
}

std::string CdfChart(const ChartLabels& labels,
                     const std::vector<std::pair<std::string, std::vector<double>>>& samples) {
  std::vector<Series> series;
  for (const auto& [name, values] : samples) {
    std::vector<double> sorted = values;
    std::sort(sorted.begin(), sorted.end());
    Series line{.name = name, .points = {}};
    for (size_t i = 0; i < sorted.size(); ++i) {
      line.points.emplace_back(sorted[i], double(i) / sorted.size());  // a step up at each sample
      line.points.emplace_back(sorted[i], double(i + 1) / sorted.size());
    }
    series.push_back(std::move(line));
  }
  return LineChart(labels, series);
}

std::string HeatMapChart(const HeatMap& map) {
  constexpr double kCellWidth = 64, kCellHeight = 30, kAxisName = 28;
  size_t longest = 0;
  for (const std::string& row : map.rows) longest = std::max(longest, row.size());
  const double left = std::max(kLeft, kAxisName + kCharacter * static_cast<double>(longest));
  const double width = left + kRight + kCellWidth * std::max<size_t>(1, map.columns.size());
  const double height = kTop + kBottom + kCellHeight * std::max<size_t>(1, map.rows.size());
  std::string body = Frame(map.labels, left, width, height);
  for (size_t column = 0; column < map.columns.size(); ++column) {
    body += Text(left + (column + 0.5) * kCellWidth, height - kBottom + 18,
                 "text-anchor=\"middle\"", map.columns[column]);
  }
  for (size_t row = 0; row < map.rows.size(); ++row) {
    const double y = kTop + row * kCellHeight;
    body += Text(left - 8, y + kCellHeight / 2 + 4, "text-anchor=\"end\"", map.rows[row]);
    for (size_t column = 0; column < map.columns.size(); ++column) {
      const double value = map.values[row][column];
      const double x = left + column * kCellWidth;
      body += absl::StrFormat(
          "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"/>\n", x + 1,
          y + 1, kCellWidth - 2, kCellHeight - 2,
          CellColour((value - map.low) / (map.high - map.low)));
      body +=
          Text(x + kCellWidth / 2, y + kCellHeight / 2 + 4, "class=\"cell\" text-anchor=\"middle\"",
               std::isfinite(value) ? absl::StrFormat("%.3g", value) : "");
    }
  }
  return Document(width, height, body);
}

}  // namespace baton::cli
