#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "common/base/bf16.h"
#include "kernels/cache_view.h"
#include "kernels/matrix.h"
#include "kernels/parallel.h"

namespace baton::kernels {

// Three threads, so that work is shared even on a single core.
inline ThreadPool& TestPool() {
  static ThreadPool pool(3);
  return pool;
}

template <typename T>
std::vector<T> RandomValues(int64_t count, uint32_t seed, float deviation = 1.0f) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<T> values(count);
  for (T& value : values) value = T(normal(engine));
  return values;
}

template <typename T>
MatrixView<T> View(std::vector<T>& values, int64_t rows, int64_t cols) {
  return {values.data(), rows, cols};
}

template <typename T>
MatrixView<const T> View(const std::vector<T>& values, int64_t rows, int64_t cols) {
  return {values.data(), rows, cols};
}

inline std::vector<float> Floats(const std::vector<BFloat16>& values) {
  std::vector<float> floats(values.size());
  for (size_t i = 0; i < values.size(); ++i) floats[i] = static_cast<float>(values[i]);
  return floats;
}

// A pool of `entries` entries whose pages lie in reverse order, with one page of canaries on either
// side; memory starts out as 0xcd wherever no entry was written.
class TestPages {
 public:
  TestPages(EntryFormat format, int head_dim, int entries_per_page, int64_t entries) {
    const int64_t pages = (entries + entries_per_page - 1) / entries_per_page;
    pool.format = format;
    pool.head_dim = head_dim;
    pool.entries_per_page = entries_per_page;
    pool.page_bytes = PageBytes(format, head_dim, entries_per_page);
    memory.assign((pages + 2) * pool.page_bytes, std::byte{0xcd});
    pool.data = memory.data();
    ids.resize(pages);
    std::iota(ids.rbegin(), ids.rend(), 1);
    table = {ids};
  }
  TestPages(const TestPages&) = delete;

  PagedPool pool;
  PageTable table;
  std::vector<std::byte> memory;
  std::vector<int32_t> ids;
};

}  // namespace baton::kernels
