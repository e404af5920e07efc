#include "cli/needle/grid.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "absl/strings/str_cat.h"

namespace baton::cli {
namespace {

using Json = nlohmann::json;

absl::Status Refuse(absl::string_view option, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("--", option, " ", why));
}

absl::Status Check(const GridOptions& options) {
  for (const int64_t length : options.lengths) {
    if (length < 64 || length > int64_t{1} << 22) {
      return Refuse("lengths", absl::StrCat("are from 64 to 4194304 tokens, not ", length));
    }
  }
  for (const double depth : options.depths) {
    if (!(depth >= 0 && depth <= 100)) {
      return Refuse("depths", absl::StrCat("are from 0 to 100 percent, not ", depth));
    }
  }
  for (const int count : options.distractors) {
    if (count < 0 || count > Cell::kMostDistractors) {
      return Refuse("distractors",
                    absl::StrCat("are from 0 to ", Cell::kMostDistractors, ", not ", count));
    }
  }
  for (const int count : options.turns) {
    if (count < 1 || count > Cell::kMostDistractors) {
      return Refuse("turns",
                    absl::StrCat("are from 1 to ", Cell::kMostDistractors, ", not ", count));
    }
  }
  if (options.align != 0 && options.align != 4 && options.align != 128) {
    return Refuse("align", absl::StrCat("is 0, 4 or 128, not ", options.align));
  }
  if (options.repeat < 1) return Refuse("repeat", "is at least 1");
  if (options.lengths.empty() || options.depths.empty()) {
    return Refuse(options.lengths.empty() ? "lengths" : "depths", "has no values");
  }
  return absl::OkStatus();
}

std::vector<int> Residues(int align) {
  if (align == 4) return {0, 1, 2, 3};
  if (align == 128) return {127, 0, 1};
  return {0};
}

Json CellJson(const CellResult& result) {
  const Cell& cell = result.cell;
  Json json = {{"tokens", cell.tokens},
               {"depth", cell.depth},
               {"distractors", cell.distractors},
               {"turns", cell.turns},
               {"modulus", cell.modulus},
               {"residue", cell.residue},
               {"seed", cell.seed},
               {"position", result.position},
               {"prompt_tokens", result.prompt_tokens},
               {"expected", result.expected},
               {"answer", result.answer},
               {"found", result.found},
               {"seconds", result.seconds},
               {"handoff_bytes", result.handoff_bytes}};
  if (result.explanation) json["explanation"] = result.explanation->ToJson();
  return json;
}

}  // namespace

absl::StatusOr<std::vector<Cell>> MakeGrid(const GridOptions& options) {
  const absl::Status status = Check(options);
  if (!status.ok()) return status;
  std::vector<Cell> cells;
  for (const int64_t length : options.lengths) {
    for (const double depth : options.depths) {
      for (const int distractors : options.distractors) {
        for (const int turns : options.turns) {
          for (const int residue : Residues(options.align)) {
            for (int repeat = 0; repeat < options.repeat; ++repeat) {
              // The text does not depend on which other cells are asked.
              const uint64_t seed = options.seed * 1000003 + static_cast<uint64_t>(length) * 101 +
                                    static_cast<uint64_t>(std::llround(depth * 100)) * 7919 +
                                    static_cast<uint64_t>(repeat) * 2;
              cells.push_back({.tokens = length,
                               .depth = depth,
                               .distractors = distractors,
                               .turns = turns,
                               .modulus = options.align,
                               .residue = residue,
                               .seed = seed});
            }
          }
        }
      }
    }
  }
  std::stable_sort(cells.begin(), cells.end(),
                   [](const Cell& a, const Cell& b) { return a.tokens < b.tokens; });
  return cells;
}

int SubjectResult::found() const {
  return static_cast<int>(std::count_if(cells.begin(), cells.end(),
                                        [](const CellResult& result) { return result.found; }));
}

HeatTable MakeHeatTable(const SubjectResult& result) {
  std::set<int64_t> lengths;
  std::set<double> depths;
  for (const CellResult& item : result.cells) {
    lengths.insert(item.cell.tokens);
    depths.insert(item.cell.depth);
  }
  HeatTable table{.lengths = {lengths.begin(), lengths.end()},
                  .depths = {depths.begin(), depths.end()},
                  .share = {}};
  for (const double depth : table.depths) {
    std::vector<double>& row = table.share.emplace_back();
    for (const int64_t length : table.lengths) {
      int asked = 0;
      int found = 0;
      for (const CellResult& item : result.cells) {
        if (item.cell.tokens != length || item.cell.depth != depth) continue;
        ++asked;
        found += item.found ? 1 : 0;
      }
      row.push_back(asked == 0 ? std::numeric_limits<double>::quiet_NaN()
                               : static_cast<double>(found) / asked);
    }
  }
  return table;
}

Json ToJson(const std::vector<SubjectResult>& results, uint64_t seed) {
  Json subjects = Json::array();
  for (const SubjectResult& result : results) {
    Json cells = Json::array();
    for (const CellResult& item : result.cells) cells.push_back(CellJson(item));
    subjects.push_back({{"name", result.name},
                        {"flags", result.flags},
                        {"found", result.found()},
                        {"asked", result.cells.size()},
                        {"cells", std::move(cells)}});
  }
  return {{"seed", seed}, {"subjects", std::move(subjects)}};
}

}  // namespace baton::cli
