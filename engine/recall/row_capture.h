#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "engine/model/forward.h"
#include "engine/recall/probe.h"
#include "engine/recall/reference_index.h"

namespace baton::engine {

// Listens to a prompt being computed and reports on single rows of it: one call of Forward with
// the observer of WholePrompt for all rows, in order, and that of SingleRow for those of interest.
class RowCapture {
 public:
  // By CSA layer, and without entries as yet.
  explicit RowCapture(std::map<int, ReferenceIndex> indexes) : indexes_(std::move(indexes)) {}

  ForwardObserver WholePrompt();
  ForwardObserver SingleRow();

  // On the row at `position`, after Forward had it alone in a batch. `needle`: tokens.
  std::vector<LayerReport> Report(int64_t position, const IndexRange& needle) const;

 private:
  struct Row {
    std::vector<int32_t> selected;
    std::vector<float> scores;
    std::vector<float> attention;  // of each selected, the largest share among heads
    std::vector<BFloat16> q;
    std::vector<BFloat16> w;
  };

  std::map<int, ReferenceIndex> indexes_;
  std::map<int, Row> rows_;  // by layer, of the newest row
};

}  // namespace baton::engine
