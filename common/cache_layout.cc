#include "common/cache_layout.h"

#include <algorithm>

#include "common/base/cache_ratios.h"
#include "common/base/check.h"

namespace baton {

std::string_view CacheStreamName(CacheStream stream) {
  switch (stream) {
    case CacheStream::kCsaKv:
      return "csa_kv";
    case CacheStream::kIndexKey:
      return "index_key";
    case CacheStream::kHcaKv:
      return "hca_kv";
    case CacheStream::kWindowKv:
      return "window_kv";
    case CacheStream::kMtpWindowKv:
      return "mtp_window_kv";
    case CacheStream::kCsaOverlapState:
      return "csa_overlap_state";
    case CacheStream::kCsaState:
      return "csa_state";
    case CacheStream::kIndexOverlapState:
      return "index_overlap_state";
    case CacheStream::kIndexState:
      return "index_state";
    case CacheStream::kHcaState:
      return "hca_state";
    case CacheStream::kMtpCarry:
      return "mtp_carry";
  }
  return "unknown";
}

std::string_view RecordFormatName(RecordFormat format) {
  switch (format) {
    case RecordFormat::kBf16:
      return "bf16";
    case RecordFormat::kF32:
      return "f32";
    case RecordFormat::kFp8Packed:
      return "fp8_packed";
    case RecordFormat::kFp8Index:
      return "fp8_index";
    case RecordFormat::kFp4Index:
      return "fp4_index";
  }
  return "unknown";
}

const StreamLayout* CacheLayout::Find(CacheStream stream) const {
  const auto it = std::find_if(streams.begin(), streams.end(),
                               [&](const StreamLayout& layout) { return layout.stream == stream; });
  return it == streams.end() ? nullptr : &*it;
}

IndexRange LiveRecords(CacheStream stream, int64_t tokens) {
  BATON_CHECK(tokens >= 0) << tokens;
  const auto from = [](int64_t begin, int64_t end) {
    return IndexRange{std::max<int64_t>(begin, 0), std::max<int64_t>(end, 0)};
  };
  const int64_t csa_open = tokens / kCsaRatio * kCsaRatio;
  switch (stream) {
    case CacheStream::kCsaKv:
    case CacheStream::kIndexKey:
      return {0, tokens / kCsaRatio};
    case CacheStream::kHcaKv:
      return {0, tokens / kHcaRatio};
    case CacheStream::kWindowKv:
      return from(tokens - (kWindowTokens - 1), tokens);
    case CacheStream::kMtpWindowKv:
      return from(tokens - kWindowTokens, tokens - 1);
    case CacheStream::kCsaOverlapState:
    case CacheStream::kIndexOverlapState:
      return from(csa_open - kCsaRatio, tokens);
    case CacheStream::kCsaState:
    case CacheStream::kIndexState:
      return {csa_open, tokens};
    case CacheStream::kHcaState:
      return {tokens / kHcaRatio * kHcaRatio, tokens};
    case CacheStream::kMtpCarry:
      return from(tokens - 1, tokens);
  }
  BATON_CHECK(false) << "stream " << static_cast<int>(stream);
  return {};
}

bool IsAppendOnly(CacheStream stream) {
  return stream == CacheStream::kCsaKv || stream == CacheStream::kIndexKey ||
         stream == CacheStream::kHcaKv;
}

void SequenceRecords::AppendPieces(const RecordRange& range, std::vector<RecordPiece>*) const {
  BATON_CHECK(false) << CacheStreamName(range.stream) << " records have no address here";
}

int64_t HandoffBytes(const CacheLayout& layout, int64_t tokens) {
  int64_t bytes = 0;
  for (const StreamLayout& stream : layout.streams) {
    bytes += LiveRecords(stream.stream, tokens).size() * stream.layers * stream.record_bytes;
  }
  return bytes;
}

}  // namespace baton
