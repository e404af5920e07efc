#pragma once

#include <algorithm>
#include <vector>

#include "kernels/cache_entry.h"
#include "tests/kernels/cuda/support.h"

namespace baton::kernels::cuda {

// The same pool twice, on the host for the CPU op and on the device, with the pages of several
// sequences. What nobody stores stays 0xcd on both sides.
class TwinPages {
 public:
  TwinPages(EntryFormat format, int head_dim, int entries_per_page, int sequences, int entries_each)
      : pages_each_((entries_each + entries_per_page - 1) / entries_per_page),
        host_(format, head_dim, entries_per_page,
              int64_t{sequences} * pages_each_ * entries_per_page),
        device_(host_.memory),
        table_(host_.ids) {}

  PagedPool host_pool() const { return host_.pool; }
  PagedPool device_pool() const {
    PagedPool pool = host_.pool;
    pool.data = device_.get();
    return pool;
  }
  PageTable host_table(int sequence) const {
    return {std::span(host_.ids).subspan(int64_t{sequence} * pages_each_, pages_each_)};
  }
  std::vector<int32_t> ids(int sequence) const {
    const std::span<const int32_t> pages = host_table(sequence).pages;
    return {pages.begin(), pages.end()};
  }
  const int32_t* device_table() const { return table_.get(); }
  int pages_each() const { return pages_each_; }

  // Bytes of the two pools that differ.
  int64_t DifferentBytes() const { return CountDifferent(device_.Download(), host_.memory); }
  int64_t bytes() const { return static_cast<int64_t>(host_.memory.size()); }

  // Entries [0, entries) of a sequence as values, from the device or the host.
  std::vector<BFloat16> DeviceValues(int sequence, int entries) const {
    std::vector<std::byte> memory = device_.Download();
    PagedPool pool = host_.pool;
    pool.data = memory.data();
    return Values(pool, sequence, entries);
  }
  std::vector<BFloat16> HostValues(int sequence, int entries) const {
    return Values(host_.pool, sequence, entries);
  }

 private:
  std::vector<BFloat16> Values(const PagedPool& pool, int sequence, int entries) const {
    std::vector<BFloat16> values(int64_t{entries} * pool.head_dim);
    for (int entry = 0; entry < entries; ++entry) {
      DecodeEntry(pool, host_table(sequence), entry,
                  values.data() + int64_t{entry} * pool.head_dim);
    }
    return values;
  }

  int pages_each_;
  TestPages host_;
  DeviceArray<std::byte> device_;
  DeviceArray<int32_t> table_;
};

// Every pair of head_dim and storage format that exists.
struct EntryKind {
  int head_dim;
  EntryFormat format;
  const char* name;
};
inline const EntryKind kEntryKinds[] = {{128, EntryFormat::kBf16, "IndexBf16"},
                                        {128, EntryFormat::kFp8Index, "IndexFp8"},
                                        {128, EntryFormat::kFp4Index, "IndexFp4"},
                                        {512, EntryFormat::kBf16, "KvBf16"},
                                        {512, EntryFormat::kFp8Packed, "KvFp8"}};

}  // namespace baton::kernels::cuda
