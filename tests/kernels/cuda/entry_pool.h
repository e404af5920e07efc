#pragma once

#include <algorithm>
#include <numeric>
#include <optional>
#include <random>
#include <vector>

#include "kernels/cache_entry.h"
#include "tests/kernels/cuda/support.h"

namespace baton::kernels::cuda {

inline constexpr int kTestEntriesPerPage = 64;

// Entries of several sequences in one pool: pages shuffled, one unused page in front.
class EntryPool {
 public:
  EntryPool(EntryFormat format, int head_dim, int per_page, const std::vector<int64_t>& entries,
            uint32_t seed) {
    int32_t pages = 1;
    for (const int64_t count : entries) {
      tables_.emplace_back((count + per_page - 1) / per_page);
      pages += static_cast<int32_t>(tables_.back().size());
    }
    std::vector<int32_t> ids(pages - 1);
    std::iota(ids.begin(), ids.end(), 1);
    std::shuffle(ids.begin(), ids.end(), std::mt19937(seed));
    auto next = ids.begin();
    for (auto& table : tables_) {
      for (int32_t& id : table) id = *next++;
    }
    pool_ = {.format = format,
             .head_dim = head_dim,
             .entries_per_page = per_page,
             .page_bytes = PageBytes(format, head_dim, per_page)};
    memory_.assign(pages * pool_.page_bytes, std::byte{0xcd});
    pool_.data = memory_.data();
  }

  const PagedPool& host() const { return pool_; }
  const std::vector<int32_t>& pages(int sequence) const { return tables_[sequence]; }
  PageTable table(int sequence) const { return {tables_[sequence]}; }

  void Set(int sequence, int64_t entry, const BFloat16* values) {
    EncodeEntry(pool_, table(sequence), entry, values);
  }
  // A copy of the pool on the device, of the values set so far.
  PagedPool Upload() {
    device_.emplace(memory_);
    PagedPool pool = pool_;
    pool.data = device_->get();
    return pool;
  }

 private:
  PagedPool pool_;
  std::vector<std::vector<int32_t>> tables_;
  std::vector<std::byte> memory_;
  std::optional<DeviceArray<std::byte>> device_;
};

}  // namespace baton::kernels::cuda
