#pragma once

#include <cstddef>
#include <cstdint>

#include "common/base/bf16.h"
#include "kernels/cache_view.h"

// One entry of a paged pool: as values, and as the bytes of a hand-off record. A record is the
// entry's value bytes followed by its scale bytes, whatever the page size:
//   kBf16 2 * head_dim;  kFp8Packed 584 = 448 + 128 + 8;  kFp8Index 132 = 128 + 4;
//   kFp4Index 68 = 64 + 4.
// Entries of different indices may be read and written from different threads.

namespace baton::kernels {

struct EntryBytes {
  int64_t values = 0;
  int64_t scales = 0;  // 0 for kBf16
};
EntryBytes BytesOfEntry(EntryFormat format, int head_dim);
int64_t RecordBytes(EntryFormat format, int head_dim);

// Where entry j's value bytes and scale bytes lie (the latter null for kBf16). Within a page those
// of neighbouring entries adjoin.
struct EntryAddress {
  std::byte* values = nullptr;
  std::byte* scales = nullptr;
};
EntryAddress LocateEntry(const PagedPool& pool, const PageTable& pages, int64_t entry);

// Writes head_dim values in the pool's format. kFp8Packed: groups of 64 with Fp8Scale over the
// first 448 channels, the last 64 as BF16. kFp8Index: one Fp8Scale. kFp4Index: groups of 32 with
// Fp4Scale; e2m1 has no NaN, so a group with one gets a NaN scale. Values already on the format's
// grid are stored exactly.
void EncodeEntry(const PagedPool& pool, const PageTable& pages, int64_t entry,
                 const BFloat16* values);
// Reads them back; every format's values are BF16 values.
void DecodeEntry(const PagedPool& pool, const PageTable& pages, int64_t entry, BFloat16* values);

}  // namespace baton::kernels
