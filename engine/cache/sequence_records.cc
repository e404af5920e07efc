#include "engine/cache/sequence_records.h"

#include <cstring>

#include "common/base/check.h"
#include "kernels/cache_entry.h"

namespace baton::engine {
namespace {

// Tokens a record of a paged stream stands for.
int64_t TokensPerEntry(CacheStream stream) {
  return stream == CacheStream::kHcaKv ? ModelConfig::kHcaRatio : ModelConfig::kCsaRatio;
}

// The append-only streams are those that lie in pages.
bool IsPaged(CacheStream stream) { return IsAppendOnly(stream); }

}  // namespace

int64_t StoredRecords::CheckedRecordBytes(const RecordRange& range, size_t bytes) const {
  const StreamLayout* stream = layout_.Find(range.stream);
  BATON_CHECK(stream != nullptr) << "this cache has no " << CacheStreamName(range.stream);
  BATON_CHECK(range.layer < stream->layers)
      << CacheStreamName(range.stream) << " layer " << range.layer << " of " << stream->layers;
  const int64_t reserved = pages_.size() * storage_.geometry().options.page_tokens;
  const int64_t limit = IsPaged(range.stream) ? reserved / TokensPerEntry(range.stream) : reserved;
  BATON_CHECK(range.indices.begin >= 0 && range.indices.begin <= range.indices.end &&
              range.indices.end <= limit)
      << CacheStreamName(range.stream) << " records [" << range.indices.begin << ", "
      << range.indices.end << "), reserved up to " << limit;
  BATON_CHECK(bytes == static_cast<size_t>(range.indices.size()) * stream->record_bytes)
      << bytes << " bytes for " << range.indices.size() << " records of "
      << CacheStreamName(range.stream);
  return stream->record_bytes;
}

kernels::PagedPool StoredRecords::Pool(const RecordRange& range) const {
  const auto layer = static_cast<int>(range.layer);
  switch (range.stream) {
    case CacheStream::kCsaKv:
      return storage_.CsaKv(layer);
    case CacheStream::kIndexKey:
      return storage_.IndexKeys(layer);
    case CacheStream::kHcaKv:
      return storage_.HcaKv(layer);
    default:
      break;
  }
  BATON_CHECK(false) << CacheStreamName(range.stream) << " is not paged";
  return {};
}

StoredRecords::RingPart StoredRecords::Ring(const RecordRange& range) const {
  const auto layer = static_cast<int>(range.layer);
  const auto whole = [](const auto& ring) {
    const int64_t bytes = ring.width * static_cast<int64_t>(sizeof(*ring.data));
    return RingPart{.row0 = reinterpret_cast<std::byte*>(ring.data),
                    .rows = ring.rows,
                    .row_bytes = bytes,
                    .part_bytes = bytes};
  };
  // Rows [c_a, c_b, g_a, g_b]: half 0 is the record [c_a, g_a], half 1 is [c_b, g_b].
  const auto half = [&](const kernels::RowRing<float>& ring, int half) {
    RingPart part = whole(ring);
    part.part_bytes = part.row_bytes / 4;
    part.offset = half * part.part_bytes;
    part.stride = 2 * part.part_bytes;
    part.parts = 2;
    return part;
  };
  switch (range.stream) {
    case CacheStream::kWindowKv:
      return whole(storage_.Window(slot_, layer));
    case CacheStream::kMtpWindowKv:
      return whole(storage_.MtpWindow(slot_));
    case CacheStream::kCsaOverlapState:
      return half(storage_.CsaState(slot_, layer), 0);
    case CacheStream::kCsaState:
      return half(storage_.CsaState(slot_, layer), 1);
    case CacheStream::kIndexOverlapState:
      return half(storage_.IndexState(slot_, layer), 0);
    case CacheStream::kIndexState:
      return half(storage_.IndexState(slot_, layer), 1);
    case CacheStream::kHcaState:
      return whole(storage_.HcaState(slot_, layer));
    case CacheStream::kMtpCarry:
      return whole(storage_.Carry(slot_));
    default:
      break;
  }
  BATON_CHECK(false) << CacheStreamName(range.stream) << " is not a ring";
  return {};
}

void StoredRecords::Gather(const RecordRange& range, std::span<std::byte> bytes) const {
  const int64_t record_bytes = CheckedRecordBytes(range, bytes.size());
  std::byte* out = bytes.data();
  if (IsPaged(range.stream)) {
    const kernels::PagedPool pool = Pool(range);
    const kernels::PageTable pages{pages_.ids()};
    for (int64_t i = range.indices.begin; i < range.indices.end; ++i, out += record_bytes) {
      kernels::LoadRecord(pool, pages, i, out);
    }
    return;
  }
  const RingPart ring = Ring(range);
  BATON_CHECK(range.indices.size() <= ring.rows) << range.indices.size() << " > " << ring.rows;
  for (int64_t i = range.indices.begin; i < range.indices.end; ++i) {
    const std::byte* row = ring.row0 + (i % ring.rows) * ring.row_bytes + ring.offset;
    for (int part = 0; part < ring.parts; ++part, out += ring.part_bytes) {
      std::memcpy(out, row + part * ring.stride, static_cast<size_t>(ring.part_bytes));
    }
  }
}

void StoredRecords::Scatter(const RecordRange& range, std::span<const std::byte> bytes) {
  const int64_t record_bytes = CheckedRecordBytes(range, bytes.size());
  const std::byte* in = bytes.data();
  if (IsPaged(range.stream)) {
    const kernels::PagedPool pool = Pool(range);
    const kernels::PageTable pages{pages_.ids()};
    for (int64_t i = range.indices.begin; i < range.indices.end; ++i, in += record_bytes) {
      kernels::StoreRecord(pool, pages, i, in);
    }
    return;
  }
  const RingPart ring = Ring(range);
  BATON_CHECK(range.indices.size() <= ring.rows) << range.indices.size() << " > " << ring.rows;
  for (int64_t i = range.indices.begin; i < range.indices.end; ++i) {
    std::byte* row = ring.row0 + (i % ring.rows) * ring.row_bytes + ring.offset;
    for (int part = 0; part < ring.parts; ++part, in += ring.part_bytes) {
      std::memcpy(row + part * ring.stride, in, static_cast<size_t>(ring.part_bytes));
    }
  }
}

}  // namespace baton::engine
