#include "kernels/segments.h"

#include <algorithm>
#include <random>

#include "kernels/cuda/segments.h"
#include "tests/kernels/cuda/support.h"

namespace baton::kernels::cuda {
namespace {

class SegmentsTest : public CudaTest {
 protected:
  // Segments of the given bytes, shuffled over a buffer of that size plus gaps of 16 bytes.
  struct Layout {
    std::vector<int64_t> place;  // of each segment in memory
    std::vector<int64_t> bytes;
    int64_t memory_bytes = 0;
    int64_t total = 0;

    std::vector<Segment> On(std::byte* memory) const {
      std::vector<Segment> segments;
      int64_t offset = 0;
      for (size_t i = 0; i < bytes.size(); ++i) {
        segments.push_back({.data = memory + place[i], .offset = offset, .bytes = bytes[i]});
        offset += bytes[i];
      }
      return segments;
    }
  };

  static Layout Shuffled(const std::vector<int64_t>& bytes, int64_t gap) {
    Layout layout = {.place = std::vector<int64_t>(bytes.size()), .bytes = bytes};
    std::vector<size_t> order(bytes.size());
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(5));
    for (const size_t i : order) {
      layout.place[i] = layout.memory_bytes;
      layout.memory_bytes += bytes[i] + gap;
      layout.total += bytes[i];
    }
    return layout;
  }

  static void Check(const Layout& layout) {
    std::vector<std::byte> memory(layout.memory_bytes);
    std::mt19937 engine(6);
    for (std::byte& byte : memory) byte = static_cast<std::byte>(engine());
    std::vector<std::byte> staging(layout.total);
    const uint64_t digest =
        kernels::GatherSegments(layout.On(memory.data()), staging.data(), TestPool());

    const DeviceArray<std::byte> source(memory);
    DeviceArray<std::byte> target(layout.memory_bytes), device_staging(layout.total);
    const DeviceArray<Segment> from(layout.On(source.get())), to(layout.On(target.get()));
    const DeviceArray<uint64_t> digests(std::vector<uint64_t>(2, 0));
    const auto count = static_cast<int>(layout.bytes.size());
    GatherSegments({from.get(), count, layout.total}, device_staging.get(), digests.get(),
                   TestStream().get());
    ScatterSegments({to.get(), count, layout.total}, device_staging.get(), digests.get() + 1,
                    TestStream().get());
    EXPECT_EQ(digests.Download(), (std::vector<uint64_t>{digest, digest}));
    EXPECT_EQ(CountDifferent(device_staging.Download(), staging), 0);
    std::vector<std::byte> expected(layout.memory_bytes, std::byte{0xff});
    kernels::ScatterSegments(layout.On(expected.data()), staging.data(), TestPool());
    EXPECT_EQ(CountDifferent(target.Download(), expected), 0);
  }
};

TEST_F(SegmentsTest, PagesAndRowsOfStateArriveWithTheCpusDigest) {
  std::vector<int64_t> bytes;
  for (int i = 0; i < 40; ++i) bytes.push_back(65'536);  // CSA pages
  for (int i = 0; i < 40; ++i) bytes.push_back(16'384);  // index pages
  for (int i = 0; i < 300; ++i) bytes.push_back(1'024);  // window rows
  for (int i = 0; i < 21; ++i) bytes.push_back(8'192);   // compressor rows
  for (int i = 0; i < 20; ++i) bytes.push_back(1'728);   // packed HCA pages
  Check(Shuffled(bytes, 16));
}

TEST_F(SegmentsTest, PartialPagesOfOddSizesAndEmptySegments) {
  std::vector<int64_t> bytes;
  for (int i = 0; i < 500; ++i) bytes.push_back(4 * (i % 70));
  for (int i = 0; i < 3; ++i) bytes.push_back(100'004);
  Check(Shuffled(bytes, 4));
}

TEST_F(SegmentsTest, OneWordAndNothing) {
  Check(Shuffled({4}, 0));
  const DeviceArray<uint64_t> digest(std::vector<uint64_t>{7});
  GatherSegments({}, nullptr, digest.get(), TestStream().get());
  EXPECT_EQ(digest.Download()[0], 7u) << "sums are added";
}

TEST_F(SegmentsTest, OneSegmentBeyondTwoToTheThirtyOneBytes) {
  constexpr int64_t kBytes = (int64_t{1} << 31) + 48;
  DeviceArray<std::byte> source(kBytes), staging(kBytes);
  const std::vector<std::byte> tail(32, std::byte{0x5a});
  CopyAsync(source.get() + kBytes - 32, tail.data(), 32, TestStream().get());
  const DeviceArray<Segment> segment(std::vector<Segment>{{.data = source.get(), .bytes = kBytes}});
  const DeviceArray<uint64_t> digest(std::vector<uint64_t>{0});
  GatherSegments({segment.get(), 1, kBytes}, staging.get(), digest.get(), TestStream().get());
  EXPECT_EQ(CountDifferent(staging.Download(kBytes - 32, 32), tail), 0);
  EXPECT_EQ(staging.Download(kBytes / 2, 1)[0], std::byte{0xff});
}

}  // namespace
}  // namespace baton::kernels::cuda
