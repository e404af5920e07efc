#include "engine/cache/geometry.h"

#include "absl/strings/str_cat.h"
#include "kernels/cache_entry.h"

namespace baton::engine {
namespace {

using kernels::EntryFormat;

constexpr int kMaxPageTokens = 1 << 16;
constexpr int kMaxRollbackRows = 64;

RecordFormat RecordFormatOf(EntryFormat format) {
  switch (format) {
    case EntryFormat::kBf16:
      return RecordFormat::kBf16;
    case EntryFormat::kFp8Packed:
      return RecordFormat::kFp8Packed;
    case EntryFormat::kFp8Index:
      return RecordFormat::kFp8Index;
    case EntryFormat::kFp4Index:
      return RecordFormat::kFp4Index;
  }
  return RecordFormat::kBf16;
}

absl::Status CheckOptions(const CacheOptions& options) {
  const auto refuse = [](auto&&... parts) {
    return absl::InvalidArgumentError(absl::StrCat(parts...));
  };
  if (options.page_tokens < kHcaRatio || options.page_tokens > kMaxPageTokens ||
      options.page_tokens % kHcaRatio != 0) {
    return refuse("page_tokens is ", options.page_tokens, ", must be a multiple of ", kHcaRatio,
                  " up to ", kMaxPageTokens);
  }
  if (options.pages < 1 || options.pages > INT32_MAX) {
    return refuse("pages is ", options.pages, ", must be in [1, 2^31)");
  }
  if (options.slots < 1) return refuse("slots is ", options.slots, ", must be at least 1");
  if (options.rollback_rows < 1 || options.rollback_rows > kMaxRollbackRows) {
    return refuse("rollback_rows is ", options.rollback_rows, ", must be in [1, ", kMaxRollbackRows,
                  "]");
  }
  if (options.kv_format != EntryFormat::kBf16 && options.kv_format != EntryFormat::kFp8Packed) {
    return refuse("kv_format must be bf16 or fp8, not an index-key format");
  }
  if (options.index_format == EntryFormat::kFp8Packed) {
    return refuse("index_format must be bf16, fp8 or fp4, not the packed KV format");
  }
  return absl::OkStatus();
}

}  // namespace

int64_t CacheGeometry::page_bytes() const {
  const int64_t csa = kernels::PageBytes(options.kv_format, head_dim, csa_entries_per_page());
  const int64_t index =
      kernels::PageBytes(options.index_format, index_head_dim, csa_entries_per_page());
  const int64_t hca = kernels::PageBytes(options.kv_format, head_dim, hca_entries_per_page());
  return csa_layers * (csa + index) + hca_layers * hca;
}

int64_t CacheGeometry::slot_bytes() const {
  const int64_t window = int64_t{window_rows()} * head_dim * 2;
  const int64_t csa = int64_t{csa_state_rows()} * 4 * (head_dim + index_head_dim) * 4;
  const int64_t hca = int64_t{hca_state_rows()} * 2 * head_dim * 4;
  const int64_t carry = int64_t{carry_rows()} * streams * hidden_size * 2;
  return (trunk_layers + mtp_layers) * window + csa_layers * csa + hca_layers * hca +
         mtp_layers * carry;
}

CacheLayout CacheGeometry::layout() const {
  CacheLayout layout;
  const auto add = [&](CacheStream stream, RecordFormat format, int layers, int64_t bytes) {
    if (layers > 0) {
      layout.streams.push_back({.stream = stream,
                                .format = format,
                                .layers = static_cast<uint32_t>(layers),
                                .record_bytes = static_cast<uint32_t>(bytes)});
    }
  };
  const RecordFormat kv = RecordFormatOf(options.kv_format);
  const int64_t kv_bytes = kernels::RecordBytes(options.kv_format, head_dim);
  const int64_t row_bytes = head_dim * 2;        // BF16
  const int64_t state_bytes = head_dim * 2 * 4;  // FP32 c and g
  const int64_t index_state_bytes = index_head_dim * 2 * 4;
  add(CacheStream::kCsaKv, kv, csa_layers, kv_bytes);
  add(CacheStream::kIndexKey, RecordFormatOf(options.index_format), csa_layers,
      kernels::RecordBytes(options.index_format, index_head_dim));
  add(CacheStream::kHcaKv, kv, hca_layers, kv_bytes);
  add(CacheStream::kWindowKv, RecordFormat::kBf16, trunk_layers, row_bytes);
  add(CacheStream::kMtpWindowKv, RecordFormat::kBf16, mtp_layers, row_bytes);
  add(CacheStream::kCsaOverlapState, RecordFormat::kF32, csa_layers, state_bytes);
  add(CacheStream::kCsaState, RecordFormat::kF32, csa_layers, state_bytes);
  add(CacheStream::kIndexOverlapState, RecordFormat::kF32, csa_layers, index_state_bytes);
  add(CacheStream::kIndexState, RecordFormat::kF32, csa_layers, index_state_bytes);
  add(CacheStream::kHcaState, RecordFormat::kF32, hca_layers, state_bytes);
  add(CacheStream::kMtpCarry, RecordFormat::kBf16, mtp_layers, int64_t{streams} * hidden_size * 2);
  return layout;
}

absl::StatusOr<CacheGeometry> MakeCacheGeometry(const ModelConfig& config,
                                                const CacheOptions& options) {
  if (absl::Status status = CheckOptions(options); !status.ok()) return status;
  return CacheGeometry{
      .options = options,
      .trunk_layers = config.num_hidden_layers,
      .csa_layers = config.layers_of(LayerKind::kCsa),
      .hca_layers = config.layers_of(LayerKind::kHca),
      .mtp_layers = config.num_nextn_predict_layers,
      .hidden_size = config.hidden_size,
      .streams = config.hc_mult,
      .head_dim = config.head_dim,
      .index_head_dim = config.index_head_dim,
  };
}

}  // namespace baton::engine
