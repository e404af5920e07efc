#include "cli/needle/output.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/svg_chart.h"
#include "cli/terminal.h"

namespace baton::cli {
namespace {

constexpr char kLengthAxis[] = "prompt length (tokens)";

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

// Mean overlap in percent of what was explained, for each length of the heat map; NaN where nothing
// was. Of one layer, or of all with layer < 0.
std::vector<double> OverlapByLength(const SubjectResult& result, int layer) {
  std::vector<double> overlaps;
  for (const int64_t length : MakeHeatTable(result).lengths) {
    double sum = 0;
    int count = 0;
    for (const CellResult& item : result.cells) {
      if (!item.explanation || item.cell.tokens != length) continue;
      for (const LayerExplanation& explained : item.explanation->layers) {
        if (layer >= 0 && explained.layer != layer) continue;
        sum += explained.overlap;
        ++count;
      }
    }
    // Tenths of a percent are what the figure can bear.
    overlaps.push_back(std::round(1000 * sum / count) / 10);
  }
  return overlaps;
}

// How many needles of a length were found, and how many were asked for.
std::pair<int, int> FoundAt(const SubjectResult& result, int64_t length) {
  std::pair<int, int> counts;
  for (const CellResult& item : result.cells) {
    if (item.cell.tokens != length) continue;
    counts.first += item.found ? 1 : 0;
    ++counts.second;
  }
  return counts;
}

std::vector<std::string> Names(const std::vector<SubjectResult>& results) {
  std::vector<std::string> names;
  for (const SubjectResult& result : results) names.push_back(result.name);
  return names;
}

std::string ByLengthSvg(ChartLabels labels, const std::vector<int64_t>& lengths,
                        const std::vector<std::string>& rows,
                        const std::vector<std::vector<double>>& values, double high) {
  HeatMap map;
  map.labels = std::move(labels);
  for (const int64_t length : lengths) map.columns.push_back(absl::StrCat(length));
  map.rows = rows;
  map.values = values;
  map.high = high;
  return HeatMapChart(map);
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
  const double overlap = OverlapByLength(result, -1).back();
  return std::isnan(overlap) ? "-" : absl::StrFormat("%.1f %%", overlap);
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

// In one line, of what was explained though no needle was lost; empty if nothing was.
std::string NothingLost(const std::vector<SubjectResult>& results) {
  std::vector<double> overlaps;
  std::vector<std::string> damaged;
  for (const SubjectResult& result : results) {
    for (const CellResult& item : result.cells) {
      if (!item.found) return "";
      if (item.explanation) overlaps.push_back(item.explanation->MeanOverlap());
    }
    std::string damage = Damage(result);
    if (damage != "-") damaged.push_back(std::move(damage));
  }
  if (overlaps.empty()) return "";
  return absl::StrFormat(
      "no needle was lost: at least %.1f %% of a selection is what FP32 selects, %s\n",
      100 * std::ranges::min(overlaps),
      damaged.empty() ? "every record arrived as it was sent"
                      : "but records arrived different: " + absl::StrJoin(damaged, ", "));
}

std::string SummaryTable(const std::vector<SubjectResult>& results) {
  const std::vector<int64_t> lengths = MakeHeatTable(results[0]).lengths;
  std::string text = "| | what was asked | found |";
  for (const int64_t length : lengths) absl::StrAppend(&text, " ", length, " |");
  absl::StrAppend(&text, " overlap with FP32 | records damaged | why lost |\n|---|---|---|");
  for (size_t i = 0; i < lengths.size(); ++i) text += "---|";
  text += "---|---|---|\n";
  for (size_t i = 0; i < results.size(); ++i) {
    const SubjectResult& result = results[i];
    absl::StrAppendFormat(&text, "| %d | %s | %d of %d |", i + 1, result.name, result.found(),
                          result.cells.size());
    for (const int64_t length : lengths) {
      const auto [found, asked] = FoundAt(result, length);
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

std::string MissedTable(const std::vector<SubjectResult>& results) {
  std::string text;
  for (const SubjectResult& result : results) {
    for (const CellResult& item : result.cells) {
      if (item.found) continue;
      if (text.empty()) {
        text = "\n## Missed\n\n| what | where | expected | answer | why |\n|---|---|---|---|---|\n";
      }
      std::string answer = item.answer;
      std::replace(answer.begin(), answer.end(), '\n', ' ');
      std::replace(answer.begin(), answer.end(), '|', '/');
      absl::StrAppendFormat(&text, "| %s | %s | %s | %s | %s |\n", result.name, Where(item),
                            item.expected, answer,
                            item.explanation ? item.explanation->Sentence() : "-");
    }
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
                      Where(item), "\n      expected ", item.expected, ", got \"",
                      Harmless(item.answer), "\"", Explained(item), "\n");
    }
  }
  return absl::StrCat(text, NothingLost(results));
}

bool HasHeatMap(const std::vector<SubjectResult>& results, size_t i) {
  return i == 0 || results[i].found() < std::ssize(results[i].cells);
}

std::string HeatMapSvg(const SubjectResult& result) {
  const HeatTable table = MakeHeatTable(result);
  std::vector<std::string> depths;
  for (const double depth : table.depths) depths.push_back(absl::StrFormat("%g", depth));
  return ByLengthSvg({.title = result.name, .x = kLengthAxis, .y = "depth (%)"}, table.lengths,
                     depths, table.share, 1);
}

std::string FoundSvg(const std::vector<SubjectResult>& results) {
  std::vector<std::vector<double>> values;
  for (const SubjectResult& result : results) {
    std::vector<double>& row = values.emplace_back();
    for (const int64_t length : MakeHeatTable(results[0]).lengths) {
      const auto [found, asked] = FoundAt(result, length);
      row.push_back(static_cast<double>(found) / asked);
    }
  }
  return ByLengthSvg({.title = "Share of the needles found", .x = kLengthAxis, .y = ""},
                     MakeHeatTable(results[0]).lengths, Names(results), values, 1);
}

std::string OverlapSvg(const std::vector<SubjectResult>& results) {
  std::vector<std::vector<double>> values;
  std::vector<std::string> rows = Names(results);
  if (results.size() == 1) {
    rows.clear();
    for (const int layer : LayersOf(results[0])) {
      rows.push_back(absl::StrCat("layer ", layer));
      values.push_back(OverlapByLength(results[0], layer));
    }
  } else {
    for (const SubjectResult& result : results) values.push_back(OverlapByLength(result, -1));
  }
  const auto is_known = [](const std::vector<double>& row) {
    return std::any_of(row.begin(), row.end(), [](double value) { return !std::isnan(value); });
  };
  if (std::none_of(values.begin(), values.end(), is_known)) return "";
  return ByLengthSvg({.title = "Selection shared with FP32 (%)", .x = kLengthAxis, .y = ""},
                     MakeHeatTable(results[0]).lengths, rows, values, 100);
}

std::string MarkdownReport(const ReportInput& input) {
  std::string text =
      "# Recall over long prompts\n\nThe same prompts for every line; `needle.json` beside this "
      "page holds the seed of each, its answer, and what each CSA layer made of it.\n\n";
  absl::StrAppend(&text, SummaryTable(input.results));
  text +=
      "\n*Found* counts needles, under each length those of that length. *Overlap with FP32*, at "
      "the greatest length: the share of the\nentries selected for the rows of the answer that an "
      "index in FP32 selects too on the same hidden states, mean over layers. Where no\nmore "
      "entries "
      "exist than are selected nothing can differ. *Records damaged* names what arrived different "
      "after a hand-off.\n\n";
  text += "![share of the needles found, by what was asked and length](found.svg)\n";
  if (!OverlapSvg(input.results).empty()) {
    text += "![overlap of the selection with FP32's, by length](overlap.svg)\n";
  }
  absl::StrAppend(&text, "\nBy depth, what lost a needle, and the first line:\n\n");
  for (size_t i = 0; i < input.results.size(); ++i) {
    if (!HasHeatMap(input.results, i)) continue;
    absl::StrAppendFormat(&text, "![needles found, %s](heat-%d.svg)\n", input.results[i].name,
                          i + 1);
  }
  absl::StrAppend(&text, MissedTable(input.results));
  if (!input.memory.empty()) absl::StrAppend(&text, MemoryTable(input.memory));
  return absl::StrCat(text, "\n## The command\n\n```sh\n", input.command, "\n```\n");
}

}  // namespace baton::cli
