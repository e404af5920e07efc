#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

// Why a needle was found or lost, out of what baton-recall reports.

namespace baton::cli {

enum class Verdict {
  kFound,
  kNotSelectedByIndex,  // FP32 would have selected it: a fault of the index
  kNotSelectedByModel,  // nor would FP32: the checkpoint's indexer does not see it
  kNotAttended,         // selected, but attention goes elsewhere
  kAnsweredOtherwise,   // selected and attended
  kLostInHandoff,       // the engine alone finds it, or records arrived different
};
std::string VerdictName(Verdict verdict);  // "not selected (FP32 selects it)"

// Of one CSA layer, over all rows of the answer.
struct LayerExplanation {
  int layer = 0;
  int64_t visible = 0;
  double overlap = 1;        // mean share of the selection that FP32 selects too
  double least_overlap = 1;  // of a row
  int needle_selected = 0;   // (row, entry of the needle) pairs that were selected
  int needle_selected_fp32 = 0;
  int needle_pairs = 0;
  int64_t worst_rank = 0;  // of the needle's best entry in a row; FP32's beside it
  int64_t worst_rank_fp32 = 0;
  double attention = 0;  // the largest share that an entry of the needle got
};

struct Explanation {
  Verdict verdict = Verdict::kFound;
  bool engine_found = false;  // the engine by itself, without a hand-off between processes
  std::string engine_answer;
  int64_t failing_row = -1;  // position whose token was the first wrong one
  std::vector<LayerExplanation> layers;
  std::vector<std::string> damaged_streams;  // "index_key: 512 of 3375 records"

  double MeanOverlap() const;
  std::string Sentence() const;  // what to say of it in one line
  nlohmann::json ToJson() const;
};

// `report`: of baton-recall. `expected`: token ids of the passphrase. `served_found`: what the
// cluster that was asked the same made of it.
Explanation Explain(const nlohmann::json& report, const std::vector<int32_t>& expected,
                    bool served_found);

}  // namespace baton::cli
