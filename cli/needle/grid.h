#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/needle/conversation.h"
#include "cli/needle/explanation.h"
#include "nlohmann/json.hpp"

// The cells that are asked, and what came of them.

namespace baton::cli {

struct GridOptions {
  std::vector<int64_t> lengths = {338, 943, 1850, 4509, 10498, 22000};
  std::vector<double> depths = {5, 50, 95};  // percent
  std::vector<int> distractors = {0};
  std::vector<int> turns = {1};
  int align = 0;   // 4: every residue modulo 4; 128: the last, first and second place of 128
  int repeat = 1;  // cells of other seeds
  uint64_t seed = 1;
};

// Shortest first. INVALID_ARGUMENT names the option that makes no sense.
absl::StatusOr<std::vector<Cell>> MakeGrid(const GridOptions& options);

struct CellResult {
  Cell cell;
  int64_t position = -1;  // of the needle's sentence, where a tokenizer says so
  int64_t prompt_tokens = 0;
  std::string expected;
  std::string answer;  // to the last question, or the first that was answered wrongly
  bool found = false;  // every question was answered rightly
  double seconds = 0;
  int64_t handoff_bytes = 0;
  std::optional<Explanation> explanation;
};

struct SubjectResult {
  std::string name;
  std::vector<std::string> flags;
  std::vector<CellResult> cells;

  int found() const;
};

// The share of needles found by length (columns) and depth (rows), ascending; NaN where none was.
struct HeatTable {
  std::vector<int64_t> lengths;
  std::vector<double> depths;
  std::vector<std::vector<double>> share;  // [depth][length]
};
HeatTable MakeHeatTable(const SubjectResult& result);

nlohmann::json ToJson(const std::vector<SubjectResult>& results, uint64_t seed);

}  // namespace baton::cli
