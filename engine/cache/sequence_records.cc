#include "engine/cache/sequence_records.h"

#include "kernels/crc32c.h"

namespace baton::engine {

uint32_t StoredRecords::DoGather(const RecordRange& range, std::span<std::byte> bytes,
                                 uint32_t crc) const {
  std::byte* to = bytes.data();
  for (const RecordPiece& piece : map_.Pieces(range, bytes.size())) {
    const auto from = std::span(piece.data, static_cast<size_t>(piece.bytes));
    crc = kernels::Crc32cCopy(from, to, crc, kernels::Stores::kCached);
    to += piece.bytes;
  }
  return crc;
}

uint32_t StoredRecords::DoScatter(const RecordRange& range, std::span<const std::byte> bytes,
                                  uint32_t crc) {
  // What lands is read when its sequence runs, by when much else has been.
  for (const RecordPiece& piece : map_.Pieces(range, bytes.size())) {
    const auto size = static_cast<size_t>(piece.bytes);
    crc = kernels::Crc32cCopy(bytes.first(size), piece.data, crc, kernels::Stores::kStreaming);
    bytes = bytes.subspan(size);
  }
  return crc;
}

}  // namespace baton::engine
