#include "cli/needle/output.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli/svg_chart.h"
#include "cli/terminal.h"

namespace baton::cli {
namespace {

std::string Percent(double share) {
  return std::isnan(share) ? "-" : absl::StrFormat("%.0f%%", 100 * share);
}

Style StyleOf(double share) {
  if (std::isnan(share)) return Style::kDim;
  return share == 1 ? Style::kGreen : share > 0 ? Style::kYellow : Style::kRed;
}

// A block for each cell: its shade tells the share even without colour.
std::string HeatLines(const SubjectResult& result, bool colour) {
  const HeatTable table = MakeHeatTable(result);
  std::string text = Styled(absl::StrFormat("%s: %d of %d needles found\n", result.name,
                                            result.found(), result.cells.size()),
                            Style::kBold, colour);
  absl::StrAppendFormat(&text, "  %-10s", "depth");
  for (const int64_t length : table.lengths) absl::StrAppendFormat(&text, "%9d", length);
  absl::StrAppend(&text, "  tokens\n");
  for (size_t row = 0; row < table.depths.size(); ++row) {
    absl::StrAppendFormat(&text, "  %-10s", absl::StrFormat("%g %%", table.depths[row]));
    for (const double share : table.share[row]) {
      const char* block = std::isnan(share) ? " " : share == 1 ? "█" : share > 0 ? "▒" : "░";
      absl::StrAppend(&text, Styled(absl::StrFormat("  %s%s%5s", block, block, Percent(share)),
                                    StyleOf(share), colour));
    }
    text += '\n';
  }
  return text;
}

std::string Where(const CellResult& item) {
  std::string where =
      absl::StrFormat("%d tokens, depth %g %%", item.prompt_tokens, item.cell.depth);
  if (item.position >= 0) absl::StrAppend(&where, ", position ", item.position);
  if (item.cell.distractors > 0) absl::StrAppend(&where, ", distractors ", item.cell.distractors);
  if (item.cell.turns > 1) absl::StrAppend(&where, ", turns ", item.cell.turns);
  return absl::StrCat(where, ", seed ", item.cell.seed);
}

std::string Explained(const CellResult& item) {
  return item.explanation ? absl::StrCat("\n      ", item.explanation->Sentence()) : "";
}

// Mean overlap of what was explained, by length; of one layer, or of all with layer < 0.
std::vector<std::pair<double, double>> OverlapByLength(const SubjectResult& result, int layer) {
  std::map<int64_t, std::pair<double, int>> sums;
  for (const CellResult& item : result.cells) {
    if (!item.explanation) continue;
    for (const LayerExplanation& explained : item.explanation->layers) {
      if (layer >= 0 && explained.layer != layer) continue;
      auto& [sum, count] = sums[item.cell.tokens];
      sum += explained.overlap;
      ++count;
    }
  }
  std::vector<std::pair<double, double>> points;
  for (const auto& [tokens, sum] : sums) {
    points.emplace_back(static_cast<double>(tokens), 100 * sum.first / sum.second);
  }
  return points;
}

std::vector<int> LayersOf(const SubjectResult& result) {
  std::vector<int> layers;
  for (const CellResult& item : result.cells) {
    if (!item.explanation) continue;
    for (const LayerExplanation& layer : item.explanation->layers) {
      if (std::find(layers.begin(), layers.end(), layer.layer) == layers.end()) {
        layers.push_back(layer.layer);
      }
    }
  }
  return layers;
}

std::string Verdicts(const SubjectResult& result) {
  std::map<std::string, int> counts;
  for (const CellResult& item : result.cells) {
    if (!item.found && item.explanation) ++counts[VerdictName(item.explanation->verdict)];
  }
  std::vector<std::string> parts;
  for (const auto& [name, count] : counts) parts.push_back(absl::StrCat(count, " ", name));
  return parts.empty() ? "-" : absl::StrJoin(parts, "; ");
}

// Of the longest prompts, where a selection has the most to choose from.
std::string OverlapAtEnd(const SubjectResult& result) {
  const auto points = OverlapByLength(result, -1);
  return points.empty() ? "-" : absl::StrFormat("%.1f %%", points.back().second);
}

// Streams that arrived different in any cell.
std::string Damage(const SubjectResult& result) {
  std::vector<std::string> names;
  for (const CellResult& item : result.cells) {
    if (!item.explanation) continue;
    for (const std::string& stream : item.explanation->damaged_streams) {
      const std::string name = stream.substr(0, stream.find(':'));
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  return names.empty() ? "-" : absl::StrJoin(names, ", ");
}

std::string SummaryTable(const std::vector<SubjectResult>& results) {
  const std::vector<int64_t> lengths = MakeHeatTable(results[0]).lengths;
  std::string text = "| what was asked | found |";
  for (const int64_t length : lengths) absl::StrAppend(&text, " ", length, " |");
  absl::StrAppend(&text, " overlap with FP32 | records damaged | why lost |\n|---|---|");
  for (size_t i = 0; i < lengths.size(); ++i) text += "---|";
  text += "---|---|---|\n";
  for (const SubjectResult& result : results) {
    absl::StrAppendFormat(&text, "| %s | %d of %d |", result.name, result.found(),
                          result.cells.size());
    for (const int64_t length : lengths) {
      int asked = 0;
      int found = 0;
      for (const CellResult& item : result.cells) {
        if (item.cell.tokens != length) continue;
        ++asked;
        found += item.found ? 1 : 0;
      }
      absl::StrAppendFormat(&text, " %d/%d |", found, asked);
    }
    absl::StrAppendFormat(&text, " %s | %s | %s |\n", OverlapAtEnd(result), Damage(result),
                          Verdicts(result));
  }
  return text;
}

std::string MemoryTable(const std::vector<MemoryPoint>& memory) {
  std::string text =
      "\n## Memory\n\nThe most memory that one engine in a process of its own ever had, weights "
      "and "
      "program included.\n\n| tokens | peak | of it the cache | peak without it |\n"
      "|---|---|---|---|\n";
  for (const MemoryPoint& point : memory) {
    const auto human = [](int64_t bytes) { return HumanBytes(static_cast<double>(bytes)); };
    absl::StrAppendFormat(&text, "| %d | %s | %s | %s |\n", point.tokens, human(point.peak_bytes),
                          human(point.cache_bytes), human(point.peak_bytes - point.cache_bytes));
  }
  return text;
}

}  // namespace

std::string TerminalReport(const std::vector<SubjectResult>& results, bool colour) {
  std::string text;
  for (const SubjectResult& result : results) absl::StrAppend(&text, HeatLines(result, colour));
  for (const SubjectResult& result : results) {
    for (const CellResult& item : result.cells) {
      if (item.found) continue;
      absl::StrAppend(&text, Styled("missed", Style::kRed, colour), " by ", result.name, ": ",
                      Where(item), "\n      expected ", item.expected, ", got \"", item.answer,
                      "\"", Explained(item), "\n");
    }
  }
  return text;
}

std::string HeatMapSvg(const SubjectResult& result) {
  const HeatTable table = MakeHeatTable(result);
  HeatMap map;
  map.labels = {.title = absl::StrCat("Needles found, ", result.name),
                .x = "prompt length (tokens)",
                .y = "depth of the needle (% of the prompt)"};
  for (const int64_t length : table.lengths) map.columns.push_back(absl::StrCat(length));
  for (const double depth : table.depths) map.rows.push_back(absl::StrFormat("%g", depth));
  map.values = table.share;
  return HeatMapChart(map);
}

std::string OverlapSvg(const std::vector<SubjectResult>& results) {
  std::vector<Series> series;
  const auto add = [&](const std::string& name, const SubjectResult& result, int layer) {
    auto points = OverlapByLength(result, layer);
    if (!points.empty()) series.push_back({.name = name, .points = std::move(points)});
  };
  if (results.size() == 1) {
    for (const int layer : LayersOf(results[0])) {
      add(absl::StrCat("layer ", layer), results[0], layer);
    }
  } else {
    for (const SubjectResult& result : results) add(result.name, result, -1);
  }
  if (series.empty()) return "";
  return LineChart({.title = "Selected entries that FP32 selects too",
                    .x = "prompt length (tokens)",
                    .y = "share of the selection (%)",
                    .log_x = true},
                   series);
}

std::string MarkdownReport(const ReportInput& input) {
  std::string text = absl::StrCat("# Recall over long prompts\n\nMade by `", input.command,
                                  "`, with the same prompts for every line: `needle.json` beside "
                                  "this file holds the seed of each, "
                                  "its answer, and what each CSA layer made of it.\n\n");
  absl::StrAppend(&text, SummaryTable(input.results));
  text +=
      "\n*Found* counts needles; under each length those of that length. *Overlap with FP32* is "
      "the share of the "
      "entries selected for the rows of the answer that an index in FP32 selects too on the same "
      "hidden states, mean "
      "over layers, at the greatest length; below 2,052 tokens nothing is left out, so nothing can "
      "differ. *Records damaged* names what "
      "arrived different after a hand-off.\n\n";
  if (!OverlapSvg(input.results).empty()) text += "![overlap by length](overlap.svg)\n\n";
  for (size_t i = 0; i < input.results.size(); ++i) {
    absl::StrAppendFormat(&text, "![needles found, %s](heat-%d.svg)\n", input.results[i].name, i);
  }
  bool is_first = true;
  for (const SubjectResult& result : input.results) {
    for (const CellResult& item : result.cells) {
      if (item.found) continue;
      if (is_first)
        text +=
            "\n## Missed\n\n| what | where | expected | answer | why |\n|---|---|---|---|---|\n";
      is_first = false;
      absl::StrAppendFormat(&text, "| %s | %s | %s | %s | %s |\n", result.name, Where(item),
                            item.expected, absl::StrJoin(absl::StrSplit(item.answer, '\n'), " "),
                            item.explanation ? item.explanation->Sentence() : "-");
    }
  }
  if (!input.memory.empty()) absl::StrAppend(&text, MemoryTable(input.memory));
  return text;
}

}  // namespace baton::cli
