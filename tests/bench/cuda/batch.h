#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/cache_entry.h"
#include "kernels/cuda/batch.h"
#include "tests/bench/cuda/harness.h"

namespace baton::kernels::cuda {

inline constexpr int kBenchEntriesPerPage = 64;

// Equal sequences, each with pages of its own for `entries` entries, shuffled over the pool.
class BenchBatch {
 public:
  BenchBatch(int sequences, int rows_each, int start, int entries,
             int per_page = kBenchEntriesPerPage) {
    const int pages_each = (entries + per_page - 1) / per_page;
    std::vector<int32_t> position, sequence, row_begin = {0}, starts, slots, pages;
    for (int s = 0; s < sequences; ++s) {
      for (int row = 0; row < rows_each; ++row) {
        position.push_back(start + row);
        sequence.push_back(s);
      }
      row_begin.push_back(static_cast<int32_t>(position.size()));
      starts.push_back(start);
      slots.push_back(s);
    }
    pages.resize(int64_t{sequences} * pages_each);
    std::iota(pages.begin(), pages.end(), 0);
    std::shuffle(pages.begin(), pages.end(), std::mt19937(1));
    pages_ = static_cast<int64_t>(pages.size());
    for (const auto* values : {&position, &sequence, &row_begin, &starts, &slots, &pages}) {
      arrays_.push_back(OnDevice(*values));
    }
    view_ = {.rows = static_cast<int>(position.size()),
             .sequences = sequences,
             .max_rows = rows_each,
             .max_pages = pages_each,
             .position = arrays_[0].As<int32_t>(),
             .sequence = arrays_[1].As<int32_t>(),
             .row_begin = arrays_[2].As<int32_t>(),
             .start = arrays_[3].As<int32_t>(),
             .slot = arrays_[4].As<int32_t>(),
             .page_table = arrays_[5].As<int32_t>()};
  }

  const BatchView& view() const { return view_; }
  int64_t pages() const { return pages_; }

 private:
  std::vector<DeviceBuffer> arrays_;
  int64_t pages_ = 0;
  BatchView view_;
};

}  // namespace baton::kernels::cuda
