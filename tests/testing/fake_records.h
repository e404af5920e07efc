#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/cache_layout.h"
#include "gtest/gtest.h"
#include "kernels/crc32c.h"

// Both ends of a hand-off without an engine: a source whose bytes follow from their address, and a
// sink that keeps what is written. Both fail the test when they are touched outside of what they
// allow. Thread-safe where an engine's are: source and sink may be used by a transfer thread while
// the test opens and closes them.

namespace baton::testing {

// A layout with every stream, in records small enough for exhaustive tests.
inline CacheLayout TinyLayout() {
  return {{
      {CacheStream::kCsaKv, RecordFormat::kBf16, 2, 8},
      {CacheStream::kIndexKey, RecordFormat::kFp4Index, 2, 3},
      {CacheStream::kHcaKv, RecordFormat::kBf16, 1, 8},
      {CacheStream::kWindowKv, RecordFormat::kBf16, 2, 4},
      {CacheStream::kMtpWindowKv, RecordFormat::kBf16, 1, 4},
      {CacheStream::kCsaOverlapState, RecordFormat::kF32, 2, 16},
      {CacheStream::kCsaState, RecordFormat::kF32, 2, 16},
      {CacheStream::kIndexOverlapState, RecordFormat::kF32, 2, 8},
      {CacheStream::kIndexState, RecordFormat::kF32, 2, 8},
      {CacheStream::kHcaState, RecordFormat::kF32, 1, 8},
      {CacheStream::kMtpCarry, RecordFormat::kBf16, 1, 32},
  }};
}

// V4-Flash: 43 layers (21 CSA, 20 HCA, 2 window only) and one MTP block, BF16 pools.
inline CacheLayout FlashLayout() {
  return {{
      {CacheStream::kCsaKv, RecordFormat::kBf16, 21, 1024},
      {CacheStream::kIndexKey, RecordFormat::kBf16, 21, 256},
      {CacheStream::kHcaKv, RecordFormat::kBf16, 20, 1024},
      {CacheStream::kWindowKv, RecordFormat::kBf16, 43, 1024},
      {CacheStream::kMtpWindowKv, RecordFormat::kBf16, 1, 1024},
      {CacheStream::kCsaOverlapState, RecordFormat::kF32, 21, 4096},
      {CacheStream::kCsaState, RecordFormat::kF32, 21, 4096},
      {CacheStream::kIndexOverlapState, RecordFormat::kF32, 21, 1024},
      {CacheStream::kIndexState, RecordFormat::kF32, 21, 1024},
      {CacheStream::kHcaState, RecordFormat::kF32, 20, 4096},
      {CacheStream::kMtpCarry, RecordFormat::kBf16, 1, 32768},
  }};
}

inline std::string Describe(const RecordRange& range) {
  return absl::StrCat(std::string(CacheStreamName(range.stream)), " layer ", range.layer, " [",
                      range.indices.begin, ", ", range.indices.end, ")");
}

// The bytes of one record: every address and seed has its own.
inline void FillPattern(uint64_t seed, CacheStream stream, uint32_t layer, int64_t index,
                        std::span<std::byte> bytes) {
  uint64_t state = seed * 0x9E3779B97F4A7C15 + static_cast<uint64_t>(stream) * 0xBF58476D1CE4E5B9 +
                   layer * 0x94D049BB133111EB + static_cast<uint64_t>(index) * 0xD6E8FEB86659FD93;
  for (std::byte& byte : bytes) {
    state ^= state >> 29;
    state *= 0xBF58476D1CE4E5B9;
    byte = static_cast<std::byte>(state >> 56);
  }
}

// What a prefill worker holds.
class PatternSource final : public SequenceRecords {
 public:
  PatternSource(CacheLayout layout, uint64_t seed) : layout_(std::move(layout)), seed_(seed) {}

  // Positions [0, tokens) are computed; their append-only records may be read.
  void Compute(int64_t tokens) { computed_ = tokens; }
  // The prompt is computed: state may be read too.
  void Finish(int64_t tokens) {
    computed_ = tokens;
    finished_ = true;
  }
  // From now on nothing may be read.
  void Close() { closed_ = true; }

  // Each call's records have an address of their own, for as long as the source.
  void AppendPieces(const RecordRange& range, std::vector<RecordPiece>* pieces) const override {
    const size_t record = layout_.Find(range.stream)->record_bytes;
    std::vector<std::byte>& bytes =
        addressed_.emplace_back(record * static_cast<size_t>(range.indices.size()));
    Gather(range, bytes);
    pieces->push_back({bytes.data(), std::ssize(bytes)});
  }

 private:
  uint32_t DoGather(const RecordRange& range, std::span<std::byte> bytes,
                    uint32_t crc) const override {
    EXPECT_FALSE(closed_) << "read after the end: " << Describe(range);
    EXPECT_TRUE(IsAppendOnly(range.stream) || finished_) << "too early: " << Describe(range);
    const IndexRange live = LiveRecords(range.stream, computed_);
    EXPECT_TRUE(range.indices.begin >= live.begin && range.indices.end <= live.end)
        << "not computed: " << Describe(range) << " of " << computed_ << " tokens";
    const size_t record = layout_.Find(range.stream)->record_bytes;
    EXPECT_EQ(bytes.size(), record * static_cast<size_t>(range.indices.size())) << Describe(range);
    for (int64_t i = range.indices.begin; i < range.indices.end; ++i) {
      FillPattern(seed_, range.stream, range.layer, i,
                  bytes.subspan(static_cast<size_t>(i - range.indices.begin) * record, record));
    }
    return kernels::Crc32c(bytes, crc);
  }
  uint32_t DoScatter(const RecordRange& range, std::span<const std::byte>, uint32_t crc) override {
    ADD_FAILURE() << "written: " << Describe(range);
    return crc;
  }

  const CacheLayout layout_;
  const uint64_t seed_;
  mutable std::deque<std::vector<std::byte>> addressed_;  // transfer thread only
  std::atomic<int64_t> computed_ = 0;
  std::atomic<bool> finished_ = false;
  std::atomic<bool> closed_ = false;
};

// What a decode worker reserved. One thread writes at a time.
class RecordSink final : public SequenceRecords {
 public:
  // The entries of `entries` tokens and the state as of `state` are there already.
  RecordSink(CacheLayout layout, int64_t entries, int64_t state, int64_t tokens)
      : layout_(std::move(layout)), entries_(entries), state_(state), tokens_(tokens) {}

  // From now on nothing may be written.
  void Close() { closed_ = true; }

  // To be written by whoever asks.
  void AppendPieces(const RecordRange& range, std::vector<RecordPiece>* pieces) const override {
    const size_t record = CheckedRecordBytes(range);
    for (int64_t i = range.indices.begin; i < range.indices.end; ++i) {
      std::vector<std::byte>& bytes = records_[{range.stream, range.layer, i}];
      bytes.resize(record);
      pieces->push_back({bytes.data(), std::ssize(bytes)});
      ++writes_;
    }
  }

  size_t records() const { return records_.size(); }
  // More than records() when some were written again, as those of corrupt frames are.
  size_t writes() const { return writes_; }

  // Empty if every record of the reservation is there and has the bytes of a PatternSource with
  // this seed; else the first that has not.
  std::string Problem(uint64_t seed) const {
    size_t expected = 0;
    for (const StreamLayout& stream : layout_.streams) {
      std::vector<std::byte> pattern(stream.record_bytes);
      for (uint32_t layer = 0; layer < stream.layers; ++layer) {
        const IndexRange reserved = Reserved(stream.stream);
        for (int64_t i = reserved.begin; i < reserved.end; ++i, ++expected) {
          FillPattern(seed, stream.stream, layer, i, pattern);
          const auto it = records_.find({stream.stream, layer, i});
          const std::string name = Describe({stream.stream, layer, {i, i + 1}});
          if (it == records_.end()) return absl::StrCat("missing: ", name);
          if (it->second != pattern) return absl::StrCat("wrong bytes: ", name);
        }
      }
    }
    return records_.size() == expected ? "" : "more records than reserved";
  }

 private:
  uint32_t DoGather(const RecordRange& range, std::span<std::byte>, uint32_t crc) const override {
    ADD_FAILURE() << "read: " << Describe(range);
    return crc;
  }
  uint32_t DoScatter(const RecordRange& range, std::span<const std::byte> bytes,
                     uint32_t crc) override {
    std::vector<RecordPiece> pieces;
    AppendPieces(range, &pieces);
    for (const RecordPiece& piece : pieces) {
      const auto size = static_cast<size_t>(piece.bytes);
      crc = kernels::Crc32cCopy(bytes.first(size), piece.data, crc, kernels::Stores::kCached);
      bytes = bytes.subspan(size);
    }
    EXPECT_TRUE(bytes.empty()) << Describe(range);
    return crc;
  }

  IndexRange Reserved(CacheStream stream) const {
    IndexRange range = LiveRecords(stream, tokens_);
    const IndexRange there = LiveRecords(stream, IsAppendOnly(stream) ? entries_ : state_);
    while (there.begin <= range.begin && range.begin < there.end) ++range.begin;
    return range;
  }

  // Of records that may be written.
  size_t CheckedRecordBytes(const RecordRange& range) const {
    EXPECT_FALSE(closed_) << "written after the end: " << Describe(range);
    const StreamLayout* stream = layout_.Find(range.stream);
    const IndexRange reserved = Reserved(range.stream);
    const bool inside = stream != nullptr && range.layer < stream->layers &&
                        range.indices.begin >= reserved.begin && range.indices.end <= reserved.end;
    EXPECT_TRUE(inside) << "outside of the reservation: " << Describe(range);
    return stream == nullptr ? 0 : stream->record_bytes;
  }

  const CacheLayout layout_;
  const int64_t entries_;
  const int64_t state_;
  const int64_t tokens_;
  mutable std::map<std::tuple<CacheStream, uint32_t, int64_t>, std::vector<std::byte>> records_;
  mutable size_t writes_ = 0;
  std::atomic<bool> closed_ = false;
};

}  // namespace baton::testing
