#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/cuda/index_logits.h"
#include "kernels/index_select.h"
#include "tests/kernels/cuda/entry_pool.h"
#include "tests/kernels/cuda/support.h"

// Queries, weights and keys of a batch of sequences, on the host and on the device.

namespace baton::kernels::cuda {

struct IndexCase {
  struct Sequence {
    int32_t start;
    int32_t rows;
  };

  IndexCase(int heads, EntryFormat format, const std::vector<Sequence>& sequences, int padding,
            uint32_t seed)
      : heads(heads),
        sequences(sequences),
        keys(format, kIndexDim, kTestEntriesPerPage, Entries(sequences), seed),
        batch(Rows(sequences, keys), padding),
        q(RandomValues<BFloat16>(int64_t{batch.view().rows} * heads * kIndexDim, seed + 1)),
        w(RandomValues<BFloat16>(int64_t{batch.view().rows} * heads, seed + 2, 0.1f)),
        device_q(q),
        device_w(w) {
    for (size_t s = 0; s < sequences.size(); ++s) {
      const int64_t entries = Entries(sequences)[s];
      const auto values =
          RandomValues<BFloat16>(entries * kIndexDim, seed + 3 + static_cast<uint32_t>(s));
      for (int64_t i = 0; i < entries; ++i) {
        keys.Set(static_cast<int>(s), i, values.data() + i * kIndexDim);
      }
    }
    device_keys = keys.Upload();
  }

  static std::vector<int64_t> Entries(const std::vector<Sequence>& sequences) {
    std::vector<int64_t> entries;
    for (const Sequence& s : sequences) entries.push_back((s.start + s.rows) / 4);
    return entries;
  }
  static std::vector<TestBatch::Sequence> Rows(const std::vector<Sequence>& sequences,
                                               const EntryPool& keys) {
    std::vector<TestBatch::Sequence> rows;
    for (size_t s = 0; s < sequences.size(); ++s) {
      rows.push_back({.start = sequences[s].start,
                      .rows = sequences[s].rows,
                      .slot = 0,
                      .pages = keys.pages(static_cast<int>(s))});
    }
    return rows;
  }

  int max_entries() const {
    const auto entries = Entries(sequences);
    return static_cast<int>(*std::max_element(entries.begin(), entries.end()));
  }

  IndexLogitsParams Params(float* scores, int64_t stride) const {
    return {.batch = batch.view(),
            .first_row = 0,
            .rows = batch.view().rows,
            .q = device_q.get(),
            .w = device_w.get(),
            .heads = heads,
            .keys = device_keys,
            .max_entries = max_entries(),
            .scores = scores,
            .stride = stride};
  }

  // What the CPU op takes for sequence s, whose first row is `row`.
  kernels::IndexSelectParams HostParams(int s, int64_t row) const {
    const int64_t rows = sequences[s].rows;
    return {.q = View(q, batch.view().rows, int64_t{heads} * kIndexDim).Rows(row, rows),
            .w = View(w, batch.view().rows, heads).Rows(row, rows),
            .heads = heads,
            .start = sequences[s].start,
            .keys = keys.host(),
            .pages = keys.table(s),
            .selected = {}};
  }

  // The CPU op's scores [rows, stride]; what it does not write keeps `unwritten`.
  std::vector<float> Expected(int64_t stride, float unwritten) const {
    std::vector<float> scores(batch.view().rows * stride, unwritten);
    int64_t row = 0;
    for (size_t s = 0; s < sequences.size(); ++s) {
      kernels::IndexLogits(HostParams(static_cast<int>(s), row),
                           {scores.data() + row * stride, sequences[s].rows, stride}, TestPool());
      row += sequences[s].rows;
    }
    return scores;
  }

  int heads;
  std::vector<Sequence> sequences;
  EntryPool keys;
  TestBatch batch;
  std::vector<BFloat16> q;
  std::vector<BFloat16> w;
  DeviceArray<BFloat16> device_q;
  DeviceArray<BFloat16> device_w;
  PagedPool device_keys;
};

}  // namespace baton::kernels::cuda
