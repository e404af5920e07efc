#include "engine/cache/record_map.h"

#include <algorithm>

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

int64_t RecordMap::CheckedRecordBytes(const RecordRange& range, size_t bytes) const {
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

kernels::PagedPool RecordMap::Pool(const RecordRange& range) const {
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

RecordMap::RingPart RecordMap::Ring(const RecordRange& range) const {
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

std::vector<RecordRun> RecordMap::Runs(const RecordRange& range, size_t bytes) const {
  const int64_t record_bytes = CheckedRecordBytes(range, bytes);
  return IsPaged(range.stream) ? PageRuns(range, record_bytes) : RingRuns(range, record_bytes);
}

std::vector<RecordPiece> RecordMap::Pieces(const RecordRange& range, size_t bytes) const {
  const std::vector<RecordRun> runs = Runs(range, bytes);
  std::vector<RecordPiece> pieces;
  for (auto run = runs.begin(); run != runs.end();) {
    if (run->bytes == run->record_bytes && run->bytes == run->stride) {
      pieces.push_back({run->cache, run->bytes * run->count});
      ++run;
      continue;
    }
    const auto parts_end = std::find_if(run, runs.end(), [&](const RecordRun& other) {
      return other.buffer >= run->buffer + run->record_bytes;
    });
    for (int64_t i = 0; i < run->count; ++i) {
      for (auto part = run; part != parts_end; ++part) {
        pieces.push_back({part->cache + i * part->stride, part->bytes});
      }
    }
    run = parts_end;
  }
  return pieces;
}

void RecordMap::AppendPieces(const RecordRange& range, std::vector<RecordPiece>* pieces) const {
  const StreamLayout* stream = layout_.Find(range.stream);
  const size_t record_bytes = stream == nullptr ? 0 : stream->record_bytes;
  const std::vector<RecordPiece> more =
      Pieces(range, static_cast<size_t>(range.indices.size()) * record_bytes);
  pieces->insert(pieces->end(), more.begin(), more.end());
}

std::vector<RecordRun> RecordMap::PageRuns(const RecordRange& range, int64_t record_bytes) const {
  const kernels::PagedPool pool = Pool(range);
  const kernels::PageTable pages{pages_.ids()};
  const kernels::EntryBytes entry = kernels::BytesOfEntry(pool.format, pool.head_dim);
  std::vector<RecordRun> runs;
  for (int64_t i = range.indices.begin; i < range.indices.end;) {
    const int64_t page_end = (i / pool.entries_per_page + 1) * pool.entries_per_page;
    const kernels::EntryAddress at = kernels::LocateEntry(pool, pages, i);
    const RecordRun values{.cache = at.values,
                           .stride = entry.values,
                           .buffer = (i - range.indices.begin) * record_bytes,
                           .record_bytes = record_bytes,
                           .bytes = entry.values,
                           .count = std::min(page_end, range.indices.end) - i};
    runs.push_back(values);
    if (entry.scales > 0) {
      RecordRun& scales = runs.emplace_back(values);
      scales.cache = at.scales;
      scales.stride = scales.bytes = entry.scales;
      scales.buffer += entry.values;
    }
    i += values.count;
  }
  return runs;
}

std::vector<RecordRun> RecordMap::RingRuns(const RecordRange& range, int64_t record_bytes) const {
  const RingPart ring = Ring(range);
  BATON_CHECK(range.indices.size() <= ring.rows) << range.indices.size() << " > " << ring.rows;
  std::vector<RecordRun> runs;
  for (int64_t i = range.indices.begin; i < range.indices.end;) {
    const int64_t row = i % ring.rows;
    const int64_t count = std::min(ring.rows - row, range.indices.end - i);
    for (int part = 0; part < ring.parts; ++part) {
      runs.push_back({.cache = ring.row0 + row * ring.row_bytes + ring.offset + part * ring.stride,
                      .stride = ring.row_bytes,
                      .buffer = (i - range.indices.begin) * record_bytes + part * ring.part_bytes,
                      .record_bytes = record_bytes,
                      .bytes = ring.part_bytes,
                      .count = count});
    }
    i += count;
  }
  return runs;
}

}  // namespace baton::engine
