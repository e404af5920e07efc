#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "engine/cache/page_list.h"
#include "engine/cache/storage.h"
#include "engine/model/device_backend.h"
#include "tests/testing/fake_records.h"

namespace baton::engine {

// The cache of one prompt of V4-Flash in device memory, on pages in an order that no arithmetic
// would guess.
class FlashCache {
 public:
  explicit FlashCache(int64_t tokens, uint32_t order) {
    CacheGeometry geometry;
    geometry.trunk_layers = 43;
    geometry.csa_layers = 21;
    geometry.hca_layers = 20;
    geometry.mtp_layers = 1;
    geometry.hidden_size = 4096;
    geometry.streams = 4;
    geometry.head_dim = 512;
    geometry.index_head_dim = 128;
    geometry.options.pages = geometry.PagesFor(tokens);
    geometry.options.slots = 1;
    auto backend = MakeDeviceBackend();
    BATON_CHECK(backend.ok()) << backend.status();
    backend_ = *std::move(backend);
    auto storage = backend_->NewCache(geometry);
    BATON_CHECK(storage.ok()) << storage.status();
    storage_ = *std::move(storage);
    std::vector<int32_t> ids(static_cast<size_t>(geometry.options.pages));
    std::iota(ids.begin(), ids.end(), 0);
    std::shuffle(ids.begin(), ids.end(), std::mt19937(order));
    pages_ = std::make_unique<PageList>(geometry.options.pages);
    pages_->Append(ids);
    records_ = backend_->NewRecords(*storage_, *pages_, /*slot=*/0);
  }

  CacheLayout layout() const { return storage_->geometry().layout(); }
  SequenceRecords& records() { return *records_; }

  void Fill(int64_t tokens, uint64_t seed) {
    ForEachRange(tokens, [&](const RecordRange& range, std::vector<std::byte>& pattern) {
      MakePattern(seed, range, pattern);
      records_->Scatter(range, pattern);
    });
  }
  // "same" or the first range that is not what Fill has written elsewhere.
  std::string Compare(int64_t tokens, uint64_t seed) {
    std::string problem = "same";
    ForEachRange(tokens, [&](const RecordRange& range, std::vector<std::byte>& pattern) {
      std::vector<std::byte> actual(pattern.size());
      MakePattern(seed, range, pattern);
      records_->Gather(range, actual);
      if (actual != pattern && problem == "same") problem = testing::Describe(range);
    });
    return problem;
  }

 private:
  template <typename Body>
  void ForEachRange(int64_t tokens, Body body) {
    for (const StreamLayout& stream : layout().streams) {
      const IndexRange live = LiveRecords(stream.stream, tokens);
      std::vector<std::byte> bytes(static_cast<size_t>(live.size()) * stream.record_bytes);
      for (uint32_t layer = 0; layer < stream.layers && !bytes.empty(); ++layer) {
        body(RecordRange{stream.stream, layer, live}, bytes);
      }
    }
  }
  static void MakePattern(uint64_t seed, const RecordRange& range, std::vector<std::byte>& bytes) {
    const size_t record = bytes.size() / static_cast<size_t>(range.indices.size());
    for (int64_t i = range.indices.begin; i < range.indices.end; ++i) {
      const size_t at = static_cast<size_t>(i - range.indices.begin) * record;
      testing::FillPattern(seed, range.stream, range.layer, i,
                           std::span(bytes).subspan(at, record));
    }
  }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<CacheStorage> storage_;
  std::unique_ptr<PageList> pages_;
  std::unique_ptr<SequenceRecords> records_;
};

}  // namespace baton::engine
