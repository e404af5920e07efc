#include "engine/cache/state_snapshot.h"

#include <span>

#include "common/base/check.h"

namespace baton::engine {
namespace {

// Calls visit(range, bytes of it) for all records of a snapshot, in a fixed order.
template <typename Visit>
void ForEachRange(const CacheLayout& layout, int64_t first_token, int64_t tokens, Visit visit) {
  for (const StreamLayout& stream : layout.streams) {
    IndexRange kept = LiveRecords(stream.stream, tokens);
    if (IsAppendOnly(stream.stream)) kept.begin = LiveRecords(stream.stream, first_token).end;
    const auto bytes = static_cast<size_t>(kept.size()) * stream.record_bytes;
    if (bytes == 0) continue;
    for (uint32_t layer = 0; layer < stream.layers; ++layer) {
      visit(RecordRange{stream.stream, layer, kept}, bytes);
    }
  }
}

}  // namespace

std::shared_ptr<const StateSnapshot> StateSnapshot::Take(const SequenceRecords& records,
                                                         const CacheLayout& layout,
                                                         int64_t first_token, int64_t tokens) {
  size_t total = 0;
  ForEachRange(layout, first_token, tokens,
               [&](const RecordRange&, size_t bytes) { total += bytes; });
  std::vector<std::byte> state(total);
  size_t at = 0;
  ForEachRange(layout, first_token, tokens, [&](const RecordRange& range, size_t bytes) {
    records.Gather(range, std::span(state).subspan(at, bytes));
    at += bytes;
  });
  return std::make_shared<const StateSnapshot>(first_token, tokens, std::move(state));
}

void StateSnapshot::Restore(SequenceRecords& records, const CacheLayout& layout) const {
  size_t at = 0;
  ForEachRange(layout, first_token_, tokens_, [&](const RecordRange& range, size_t bytes) {
    records.Scatter(range, std::span(bytes_).subspan(at, bytes));
    at += bytes;
  });
  BATON_CHECK(at == bytes_.size()) << at << " of " << bytes_.size() << " bytes: another layout";
}

}  // namespace baton::engine
