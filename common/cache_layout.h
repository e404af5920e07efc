#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// What one sequence's cache consists of, as data: the contract between the engine, which stores
// these records its own way, and kvtransfer, which moves them. Neither includes the other.
//
// A *stream* is a kind of record; a *record* is addressed by (stream, layer ordinal, logical index)
// and has the same bytes on every worker, whatever its page and ring sizes. Layer ordinals count
// the layers that own the stream, from 0 (CSA ordinal 3 is the fourth CSA layer).

namespace baton {

enum class CacheStream : uint8_t {
  kCsaKv = 1,              // compressed 4:1 KV entry; index = token / 4
  kIndexKey = 2,           // indexer key of the same entry; index = token / 4
  kHcaKv = 3,              // compressed 128:1 KV entry; index = token / 128
  kWindowKv = 4,           // sliding-window KV row of a trunk layer; index = token
  kMtpWindowKv = 5,        // the same of the MTP block; index = token
  kCsaOverlapState = 6,    // FP32 [c, g] of the "a" half of the CSA compressor; index = token
  kCsaState = 7,           // FP32 [c, g] of its "b" half
  kIndexOverlapState = 8,  // the same two of the index compressor
  kIndexState = 9,
  kHcaState = 10,  // FP32 [c, g] of the HCA compressor; index = token
  kMtpCarry = 11,  // trunk residual streams (BF16) of the last computed token; index = token
};
inline constexpr int kCacheStreamCount = 11;

std::string_view CacheStreamName(CacheStream stream);

// How the bytes of a record are to be read. Must be equal on both sides of a hand-off.
enum class RecordFormat : uint8_t {
  kBf16 = 1,       // n x BF16
  kF32 = 2,        // n x FP32
  kFp8Packed = 3,  // 584 B: 448 e4m3, 64 BF16 rope channels, 7 E8M0 scales, 1 zero byte
  kFp8Index = 4,   // 132 B: 128 e4m3, FP32 power-of-two scale
  kFp4Index = 5,   // 68 B: 64 B of e2m1 pairs (low nibble first), 4 E8M0 scales
};

std::string_view RecordFormatName(RecordFormat format);

struct StreamLayout {
  CacheStream stream = CacheStream::kCsaKv;
  RecordFormat format = RecordFormat::kBf16;
  uint32_t layers = 0;        // how many layers own this stream
  uint32_t record_bytes = 0;  // bytes of one record of one layer

  friend bool operator==(const StreamLayout&, const StreamLayout&) = default;
};

// The streams a model has under given cache formats, in ascending order of CacheStream; streams
// with no layer are absent.
struct CacheLayout {
  std::vector<StreamLayout> streams;

  const StreamLayout* Find(CacheStream stream) const;  // null when absent
  friend bool operator==(const CacheLayout&, const CacheLayout&) = default;
};

// Half-open range of logical record indices.
struct IndexRange {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end > begin ? end - begin : 0; }
  friend bool operator==(const IndexRange&, const IndexRange&) = default;
};

// The records of `stream` that a sequence of `tokens` computed tokens needs in order to continue:
// no more (the minimal hand-off), no less. Compressed streams: every closed entry. Window rows: the
// last 127 (the next token attends 128 including itself); MTP rows end one earlier, because row t
// needs token t+1. Compressor state: the open group, and for CSA the "a" half of the group before.
IndexRange LiveRecords(CacheStream stream, int64_t tokens);

// True for streams whose records never change once their last token is computed, and which can
// therefore be sent before the prompt is finished.
bool IsAppendOnly(CacheStream stream);

// Sum of record_bytes over all live records of all layers.
int64_t HandoffBytes(const CacheLayout& layout, int64_t tokens);

struct RecordRange {
  CacheStream stream = CacheStream::kCsaKv;
  uint32_t layer = 0;  // ordinal within the stream
  IndexRange indices;

  friend bool operator==(const RecordRange&, const RecordRange&) = default;
};

// Bytes of records that lie side by side.
struct RecordPiece {
  std::byte* data = nullptr;
  int64_t bytes = 0;
};

// The cache records of one sequence, by logical address. Implemented by the engine. Gather and
// Scatter may run on a transfer thread while the engine computes *other* records; whoever calls
// them owns the named records until the call returns. `bytes` holds indices.size() records back to
// back. Both return the CRC-32C (kernels/crc32c.h) of the bytes as they were copied, appended to
// data whose CRC is `crc`; Scatter may be given bytes that others change meanwhile: what it returns
// is of what it has written. Calling them with a range that was never reserved is a broken
// invariant (fatal).
class SequenceRecords {
 public:
  virtual ~SequenceRecords() = default;
  uint32_t Gather(const RecordRange& range, std::span<std::byte> bytes, uint32_t crc = 0) const {
    return DoGather(range, bytes, crc);
  }
  uint32_t Scatter(const RecordRange& range, std::span<const std::byte> bytes, uint32_t crc = 0) {
    return DoScatter(range, bytes, crc);
  }

  // Where the same bytes lie, in their order, for those who move them on a device. Fatal for
  // records that have no address.
  virtual void AppendPieces(const RecordRange& range, std::vector<RecordPiece>* pieces) const;

 private:
  virtual uint32_t DoGather(const RecordRange& range, std::span<std::byte> bytes,
                            uint32_t crc) const = 0;
  virtual uint32_t DoScatter(const RecordRange& range, std::span<const std::byte> bytes,
                             uint32_t crc) = 0;
};

}  // namespace baton
