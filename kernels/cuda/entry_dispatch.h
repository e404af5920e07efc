#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "common/base/check.h"
#include "kernels/cache_view.h"
#include "kernels/numeric.h"

namespace baton::kernels::cuda {

// Calls body(head_dim, format, numerics) with types that carry the values, for the kernel instance
// that stores to `pool`. Ends the process for a pool that no instance serves.
template <typename Body>
void DispatchEntryFormat(const PagedPool& pool, Numerics numerics, Body&& body) {
  constexpr int64_t kMaxPageBytes = std::numeric_limits<int32_t>::max();
  BATON_CHECK(pool.page_bytes % 16 == 0 && pool.page_bytes <= kMaxPageBytes &&
              pool.entries_per_page > 0)
      << "page of " << pool.page_bytes << " bytes, not a multiple of 16 below 2^31, or without "
      << "entries";
  const auto with_format = [&](auto head_dim, auto format) {
    if (numerics == Numerics::kReference) {
      body(head_dim, format, std::integral_constant<Numerics, Numerics::kReference>{});
    } else {
      body(head_dim, format, std::integral_constant<Numerics, Numerics::kExact>{});
    }
  };
  using Index = std::integral_constant<int, 128>;
  using Kv = std::integral_constant<int, 512>;
  const bool is_kv = pool.head_dim == Kv::value;
  BATON_CHECK(is_kv || pool.head_dim == Index::value) << "no kernel for head_dim " << pool.head_dim;
  switch (pool.format) {
    case EntryFormat::kBf16: {
      const std::integral_constant<EntryFormat, EntryFormat::kBf16> format;
      return is_kv ? with_format(Kv{}, format) : with_format(Index{}, format);
    }
    case EntryFormat::kFp8Packed:
      BATON_CHECK(is_kv) << "kFp8Packed needs head_dim 512, not " << pool.head_dim;
      return with_format(Kv{}, std::integral_constant<EntryFormat, EntryFormat::kFp8Packed>{});
    case EntryFormat::kFp8Index:
      BATON_CHECK(!is_kv) << "kFp8Index needs head_dim 128, not " << pool.head_dim;
      return with_format(Index{}, std::integral_constant<EntryFormat, EntryFormat::kFp8Index>{});
    case EntryFormat::kFp4Index:
      BATON_CHECK(!is_kv) << "kFp4Index needs head_dim 128, not " << pool.head_dim;
      return with_format(Index{}, std::integral_constant<EntryFormat, EntryFormat::kFp4Index>{});
  }
}

}  // namespace baton::kernels::cuda
