#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "common/base/cache_ratios.h"
#include "common/cache_layout.h"
#include "engine/model/config.h"
#include "kernels/cache_view.h"

// Sizes of the cache, all derived from the model's config and a handful of options.

namespace baton::engine {

struct CacheOptions {
  int page_tokens = 256;  // tokens a logical page covers; multiple of 128
  int64_t pages = 512;    // logical pages; one id addresses the three paged pools of every layer
  int slots = 32;         // state slots = sequences that can be live at once
  int rollback_rows = 8;  // R: unverified rows a sequence may have computed beyond its length
  kernels::EntryFormat kv_format = kernels::EntryFormat::kBf16;     // kBf16 or kFp8Packed
  kernels::EntryFormat index_format = kernels::EntryFormat::kBf16;  // kBf16, kFp8Index, kFp4Index
};

struct CacheGeometry {
  CacheOptions options;
  int trunk_layers = 0;
  int csa_layers = 0;
  int hca_layers = 0;
  int mtp_layers = 0;  // 0 or 1
  int hidden_size = 0;
  int streams = 0;         // hyper-connection streams (4)
  int head_dim = 0;        // 512
  int index_head_dim = 0;  // 128

  int csa_entries_per_page() const { return options.page_tokens / kCsaRatio; }
  int hca_entries_per_page() const { return options.page_tokens / kHcaRatio; }
  int window_rows() const { return kWindowTokens + options.rollback_rows; }
  int csa_state_rows() const { return 2 * kCsaRatio + options.rollback_rows; }
  int hca_state_rows() const { return kHcaRatio + options.rollback_rows; }
  int carry_rows() const { return 1 + options.rollback_rows; }

  int64_t page_bytes() const;  // one logical page: all pools, all layers
  int64_t slot_bytes() const;  // one state slot
  int64_t PagesFor(int64_t tokens) const {
    return (tokens + options.page_tokens - 1) / options.page_tokens;
  }
  CacheLayout layout() const;  // what a hand-off of this cache consists of
};

// Refuses, by name, options that do not fit: page_tokens not a multiple of 128, a format that the
// pool cannot hold, rollback_rows outside [1, 64].
absl::StatusOr<CacheGeometry> MakeCacheGeometry(const ModelConfig& config,
                                                const CacheOptions& options);

}  // namespace baton::engine
