#include "cli/needle/explanation.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace baton::cli {
namespace {

using Json = nlohmann::json;

// A faultless index differs from FP32 in near ties only.
constexpr double kFaultyOverlap = 0.9;
// Less of every head's attention than this is none.
constexpr double kAttended = 0.05;

// What the row that gave the first wrong token made of the needle, over all layers.
struct RowView {
  int selected = 0;
  int selected_fp32 = 0;
  double attention = 0;
};

RowView ViewOf(const Json& row) {
  RowView view;
  for (const Json& layer : row.at("layers")) {
    for (const Json& entry : layer.at("needle")) {
      view.selected += entry.at("selected").get<bool>() ? 1 : 0;
      view.selected_fp32 += entry.at("selected_fp32").get<bool>() ? 1 : 0;
      if (entry.at("attention").is_number()) {
        view.attention = std::max(view.attention, entry.at("attention").get<double>());
      }
    }
  }
  return view;
}

// Index of the first token that differs; -1 when the answer begins as expected.
int64_t FirstWrong(const Json& tokens, const std::vector<int32_t>& expected) {
  for (size_t i = 0; i < expected.size(); ++i) {
    if (i >= tokens.size() || tokens[i].get<int32_t>() != expected[i]) {
      return static_cast<int64_t>(i);
    }
  }
  return -1;
}

void AddRow(const Json& row, std::map<int, LayerExplanation>& layers,
            std::map<int, int>& row_counts) {
  for (const Json& reported : row.at("layers")) {
    const int number = reported.at("layer").get<int>();
    LayerExplanation& layer = layers[number];
    layer.layer = number;
    layer.visible = std::max(layer.visible, reported.at("visible").get<int64_t>());
    const double overlap = reported.at("overlap").get<double>();
    const int count = row_counts[number]++;
    layer.overlap = (layer.overlap * count + overlap) / (count + 1);
    layer.least_overlap = std::min(layer.least_overlap, overlap);
    int64_t rank = INT64_MAX;
    int64_t rank_fp32 = INT64_MAX;
    for (const Json& entry : reported.at("needle")) {
      ++layer.needle_pairs;
      layer.needle_selected += entry.at("selected").get<bool>() ? 1 : 0;
      layer.needle_selected_fp32 += entry.at("selected_fp32").get<bool>() ? 1 : 0;
      rank = std::min(rank, entry.at("rank").get<int64_t>());
      rank_fp32 = std::min(rank_fp32, entry.at("rank_fp32").get<int64_t>());
      if (entry.at("attention").is_number()) {
        layer.attention = std::max(layer.attention, entry.at("attention").get<double>());
      }
    }
    if (reported.at("needle").empty()) continue;
    layer.worst_rank = std::max(layer.worst_rank, rank);
    layer.worst_rank_fp32 = std::max(layer.worst_rank_fp32, rank_fp32);
  }
}

Verdict Judge(const Explanation& explanation, const RowView& view, bool served_found) {
  if (served_found) return Verdict::kFound;
  if (explanation.engine_found || !explanation.damaged_streams.empty()) {
    return Verdict::kLostInHandoff;
  }
  // A wrong selection early in the model changes what later layers ask for: the overlap tells it
  // where ranks on the same hidden states do not.
  if (explanation.MeanOverlap() < kFaultyOverlap || 2 * view.selected < view.selected_fp32) {
    return Verdict::kNotSelectedByIndex;
  }
  if (view.selected == 0) return Verdict::kNotSelectedByModel;
  return view.attention < kAttended ? Verdict::kNotAttended : Verdict::kAnsweredOtherwise;
}

}  // namespace

std::string VerdictName(Verdict verdict) {
  switch (verdict) {
    case Verdict::kFound:
      return "found";
    case Verdict::kNotSelectedByIndex:
      return "not selected (FP32 selects otherwise)";
    case Verdict::kNotSelectedByModel:
      return "not selected (nor by FP32)";
    case Verdict::kNotAttended:
      return "selected but not attended";
    case Verdict::kAnsweredOtherwise:
      return "attended, answered otherwise";
    case Verdict::kLostInHandoff:
      return "lost in the hand-off";
  }
  return "unknown";
}

double Explanation::MeanOverlap() const {
  if (layers.empty()) return 1;
  double sum = 0;
  for (const LayerExplanation& layer : layers) sum += layer.overlap;
  return sum / static_cast<double>(layers.size());
}

std::string Explanation::Sentence() const {
  std::vector<std::string> parts;
  for (const LayerExplanation& layer : layers) {
    parts.push_back(absl::StrFormat(
        "layer %d: %d of %d times selected (FP32 %d), overlap %.1f %%, attention up to %.2f",
        layer.layer, layer.needle_selected, layer.needle_pairs, layer.needle_selected_fp32,
        100 * layer.overlap, layer.attention));
  }
  parts.insert(parts.end(), damaged_streams.begin(), damaged_streams.end());
  return absl::StrCat(VerdictName(verdict), "; ", absl::StrJoin(parts, "; "));
}

Json Explanation::ToJson() const {
  Json list = Json::array();
  for (const LayerExplanation& layer : layers) {
    list.push_back({{"layer", layer.layer},
                    {"visible", layer.visible},
                    {"overlap", layer.overlap},
                    {"least_overlap", layer.least_overlap},
                    {"needle_selected", layer.needle_selected},
                    {"needle_selected_fp32", layer.needle_selected_fp32},
                    {"needle_pairs", layer.needle_pairs},
                    {"worst_rank", layer.worst_rank},
                    {"worst_rank_fp32", layer.worst_rank_fp32},
                    {"attention", layer.attention}});
  }
  return {{"verdict", VerdictName(verdict)},    {"engine_found", engine_found},
          {"engine_answer", engine_answer},     {"failing_row", failing_row},
          {"damaged_streams", damaged_streams}, {"layers", std::move(list)}};
}

Explanation Explain(const Json& report, const std::vector<int32_t>& expected, bool served_found) {
  Explanation explanation;
  const int64_t wrong = FirstWrong(report.at("tokens"), expected);
  explanation.engine_found = wrong < 0;
  std::map<int, LayerExplanation> layers;
  std::map<int, int> row_counts;
  for (const Json& row : report.at("rows")) AddRow(row, layers, row_counts);
  for (const auto& [number, layer] : layers) explanation.layers.push_back(layer);
  for (const Json& stream : report.at("handoff")) {
    const auto different = stream.at("different").get<int64_t>();
    if (different == 0) continue;
    explanation.damaged_streams.push_back(
        absl::StrCat(stream.at("stream").get<std::string>(), ": ", different, " of ",
                     stream.at("records").get<int64_t>(), " records arrived different"));
  }
  RowView view;
  if (wrong >= 0 && !report.at("rows").empty()) {
    const Json& rows = report.at("rows");
    const Json& row = rows[std::min<size_t>(static_cast<size_t>(wrong), rows.size() - 1)];
    explanation.failing_row = row.at("position").get<int64_t>();
    view = ViewOf(row);
  }
  explanation.verdict = Judge(explanation, view, served_found);
  return explanation;
}

}  // namespace baton::cli
