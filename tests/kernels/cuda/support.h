#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/batch.h"
#include "kernels/runtime/buffer.h"
#include "kernels/runtime/device.h"
#include "kernels/runtime/stream.h"
#include "tests/kernels/support.h"

// What tests of CUDA ops share: data on the device, and comparison with the CPU op.

namespace baton::kernels::cuda {

// Skips where there is no GPU; ops run on one stream.
class CudaTest : public testing::Test {
 protected:
  void SetUp() override {
    if (DeviceCount() == 0) GTEST_SKIP() << "no GPU";
  }
};

inline Stream& TestStream() {
  static Stream stream;
  return stream;
}

// An array of T on the device. Outputs start out as 0xff bytes, NaN in every float format, so that
// an element that nobody wrote shows.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(int64_t count) : count_(count) {
    auto buffer = DeviceBuffer::Allocate(count * static_cast<int64_t>(sizeof(T)));
    if (!buffer) {
      ADD_FAILURE() << "no device memory for " << count << " elements";
      std::abort();
    }
    buffer_ = std::move(*buffer);
    Fill(0xff);
  }
  explicit DeviceArray(const std::vector<T>& values)
      : DeviceArray(static_cast<int64_t>(values.size())) {
    Upload(values);
  }

  T* get() const { return buffer_.template As<T>(); }
  int64_t size() const { return count_; }

  void Fill(uint8_t byte) {
    if (count_ > 0) FillAsync(get(), byte, count_ * sizeof(T), TestStream().get());
  }
  void Upload(const std::vector<T>& values) {
    if (values.empty()) return;
    CopyAsync(get(), values.data(), values.size() * sizeof(T), TestStream().get());
    TestStream().Synchronize();
  }
  std::vector<T> Download() const { return Download(0, count_); }
  std::vector<T> Download(int64_t begin, int64_t count) const {
    std::vector<T> values(count);
    if (count > 0) {
      CopyAsync(values.data(), get() + begin, count * sizeof(T), TestStream().get());
      TestStream().Synchronize();
    }
    return values;
  }

 private:
  DeviceBuffer buffer_;
  int64_t count_ = 0;
};

// Normal values with one in 64 thirty times larger: what quantisers meet in activations.
template <typename T>
std::vector<T> RandomWithOutliers(int64_t count, uint32_t seed, float deviation = 1.0f) {
  std::vector<float> values = RandomValues<float>(count, seed, deviation);
  std::mt19937 engine(seed + 1);
  for (float& value : values) {
    if (engine() % 64 == 0) value *= 30.0f;
  }
  return std::vector<T>(values.begin(), values.end());
}

// |a - b| / |b| over all elements, NaN if either has one.
inline double RelativeError(const std::vector<float>& actual, const std::vector<float>& expected) {
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double delta = static_cast<double>(actual[i]) - expected[i];
    difference += delta * delta;
    norm += static_cast<double>(expected[i]) * expected[i];
  }
  return std::sqrt(difference / std::max(norm, 1e-30));
}
inline double RelativeError(const std::vector<BFloat16>& actual,
                            const std::vector<BFloat16>& expected) {
  return RelativeError(Floats(actual), Floats(expected));
}

// How many elements differ in any bit.
template <typename T>
int64_t CountDifferent(const std::vector<T>& actual, const std::vector<T>& expected) {
  EXPECT_EQ(actual.size(), expected.size());
  int64_t different = 0;
  for (size_t i = 0; i < std::min(actual.size(), expected.size()); ++i) {
    different += std::memcmp(&actual[i], &expected[i], sizeof(T)) != 0 ? 1 : 0;
  }
  return different;
}

// A BatchView over device copies of what it points to. Sequence s has rows[s] rows from position
// starts[s] on and state slot slots[s]; `padding` padded rows follow the last one. Pages are the
// caller's to fill: pages[s] are the page ids of sequence s.
class TestBatch {
 public:
  struct Sequence {
    int32_t start = 0;
    int32_t rows = 0;
    int32_t slot = 0;
    std::vector<int32_t> pages = {};
  };

  TestBatch(const std::vector<Sequence>& sequences, int padding)
      : TestBatch(Layout(sequences, padding)) {}

  const BatchView& view() const { return view_; }
  const std::vector<int32_t>& positions() const { return host_.position; }

 private:
  struct Host {
    std::vector<int32_t> position, sequence, row_begin, start, slot, page_table;
    int max_rows = 0;
    int max_pages = 0;
  };

  static Host Layout(const std::vector<Sequence>& sequences, int padding) {
    Host host;
    for (const Sequence& s : sequences) {
      host.max_rows = std::max(host.max_rows, s.rows);
      host.max_pages = std::max(host.max_pages, static_cast<int>(s.pages.size()));
    }
    host.row_begin.push_back(0);
    for (size_t i = 0; i < sequences.size(); ++i) {
      const Sequence& s = sequences[i];
      for (int32_t row = 0; row < s.rows; ++row) {
        host.position.push_back(s.start + row);
        host.sequence.push_back(static_cast<int32_t>(i));
      }
      host.row_begin.push_back(static_cast<int32_t>(host.position.size()));
      host.start.push_back(s.start);
      host.slot.push_back(s.slot);
      std::vector<int32_t> pages = s.pages;
      pages.resize(host.max_pages, -1);
      host.page_table.insert(host.page_table.end(), pages.begin(), pages.end());
    }
    host.position.insert(host.position.end(), padding, 0);
    host.sequence.insert(host.sequence.end(), padding, -1);
    return host;
  }

  explicit TestBatch(Host host)
      : host_(std::move(host)),
        position_(host_.position),
        sequence_(host_.sequence),
        row_begin_(host_.row_begin),
        start_(host_.start),
        slot_(host_.slot),
        page_table_(host_.page_table) {
    view_ = {.rows = static_cast<int>(host_.position.size()),
             .sequences = static_cast<int>(host_.start.size()),
             .max_rows = host_.max_rows,
             .max_pages = host_.max_pages,
             .position = position_.get(),
             .sequence = sequence_.get(),
             .row_begin = row_begin_.get(),
             .start = start_.get(),
             .slot = slot_.get(),
             .page_table = page_table_.get()};
  }

  Host host_;
  DeviceArray<int32_t> position_, sequence_, row_begin_, start_, slot_, page_table_;
  BatchView view_;
};

}  // namespace baton::kernels::cuda
