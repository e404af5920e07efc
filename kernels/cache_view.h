#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

// How ops see the cache: non-owning views, passed by value. Nothing here knows sequences.

namespace baton::kernels {

// Storage format of one entry in a paged pool. Byte layouts of a page of P entries:
//   kBf16       P x head_dim x 2
//   kFp8Packed  P records of 576 (448 e4m3, 64 BF16), then P scale records of 8 (7 E8M0, 1 zero),
//               the page rounded up to a multiple of 576; head_dim 512 only
//   kFp8Index   P x 128 e4m3, then P FP32 scales (powers of two); head_dim 128 only
//   kFp4Index   P x 64 (two e2m1 a byte, low nibble first), then P x 4 E8M0; head_dim 128 only
// Scales follow *all* values of the page: packed, never interleaved with them.
enum class EntryFormat : uint8_t { kBf16, kFp8Packed, kFp8Index, kFp4Index };

// Bytes of one page of `entries` entries, with the rounding above.
int64_t PageBytes(EntryFormat format, int head_dim, int entries);

// One layer's paged pool: entry e of page p starts in data[p * page_bytes ...].
struct PagedPool {
  std::byte* data = nullptr;
  EntryFormat format = EntryFormat::kBf16;
  int head_dim = 0;  // 512 (KV) or 128 (index keys)
  int entries_per_page = 0;
  int64_t page_bytes = 0;  // stride between pages
};

// Entry j of a sequence lies in page pages[j / entries_per_page].
struct PageTable {
  std::span<const int32_t> pages = {};
};

// Position-indexed ring of fixed-width rows: position p lies in row p % rows. Rows that fell out of
// the ring are gone; a rejected row is simply overwritten.
template <typename T>
struct RowRing {
  T* data = nullptr;  // [rows, width]
  int rows = 0;
  int width = 0;  // elements a row

  T* Row(int64_t position) const { return data + (position % rows) * width; }
};

}  // namespace baton::kernels
