#include "kernels/crc32c.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <random>
#include <string_view>
#include <thread>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

#include "gtest/gtest.h"

namespace baton::kernels {
namespace {

using Implementation = uint32_t (*)(std::span<const std::byte>, uint32_t);

std::vector<std::pair<const char*, Implementation>> Implementations() {
  std::vector<std::pair<const char*, Implementation>> all = {{"chosen", Crc32c},
                                                             {"table", Crc32cTable}};
  if (HasHardwareCrc32c()) all.emplace_back("hardware", Crc32cHardware);
  return all;
}

std::vector<std::byte> RandomBytes(size_t size, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// Memory that is mapped twice, so that what goes on in one mapping is no race of this process.
class SharedPages {
 public:
  explicit SharedPages(size_t size) : size_(size) {
    const int memory = memfd_create("crc32c-test", MFD_CLOEXEC);
    EXPECT_EQ(ftruncate(memory, static_cast<off_t>(size)), 0);
    for (void*& mapping : mappings_) {
      mapping = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
      EXPECT_NE(mapping, MAP_FAILED);
    }
    close(memory);
  }
  ~SharedPages() {
    for (void* mapping : mappings_) munmap(mapping, size_);
  }
  std::span<std::byte> bytes() const { return {static_cast<std::byte*>(mappings_[0]), size_}; }
  std::span<std::byte> other() const { return {static_cast<std::byte*>(mappings_[1]), size_}; }

 private:
  const size_t size_;
  std::array<void*, 2> mappings_{};
};
constexpr size_t kBytes = size_t{256} << 10;

TEST(Crc32cTest, GivesThePublishedAnswers) {
  std::vector<std::byte> ascending(32);
  for (size_t i = 0; i < 32; ++i) ascending[i] = static_cast<std::byte>(i);
  const std::vector<std::byte> descending(ascending.rbegin(), ascending.rend());
  const std::string_view check = "123456789";
  for (const auto& [name, crc] : Implementations()) {
    SCOPED_TRACE(name);
    EXPECT_EQ(crc({}, 0), 0u);
    EXPECT_EQ(crc(std::as_bytes(std::span(check)), 0), 0xE3069283u);
    // RFC 3720, B.4.
    EXPECT_EQ(crc(std::vector<std::byte>(32), 0), 0x8A9136AAu);
    EXPECT_EQ(crc(std::vector<std::byte>(32, std::byte{0xFF}), 0), 0x62A8AB43u);
    EXPECT_EQ(crc(ascending, 0), 0x46DD794Eu);
    EXPECT_EQ(crc(descending, 0), 0x113FDB5Cu);
  }
}

TEST(Crc32cTest, ImplementationsAgreeAtEverySizeAndAlignmentNearBlockEdges) {
  const std::vector<std::byte> bytes = RandomBytes(3 * 1024 * 2 + 3 * 192 * 2 + 64, 1);
  for (const size_t edge : {0, 192, 576, 1152, 3072, 3072 + 576, 6144, 6144 + 576}) {
    for (size_t size = edge < 20 ? 0 : edge - 20; size <= edge + 20; ++size) {
      for (size_t offset = 0; offset < 8; ++offset) {
        const auto part = std::span(bytes).subspan(offset, size);
        const uint32_t expected = Crc32cTable(part, 0x12345678);
        EXPECT_EQ(Crc32c(part, 0x12345678), expected) << size << " at " << offset;
        for (const Stores stores : {Stores::kCached, Stores::kStreaming}) {
          std::vector<std::byte> copy(size + 1, std::byte{0x5A});
          EXPECT_EQ(Crc32cCopy(part, copy.data(), 0x12345678, stores), expected)
              << size << " at " << offset;
          EXPECT_TRUE(std::equal(part.begin(), part.end(), copy.begin())) << size;
          EXPECT_EQ(copy[size], std::byte{0x5A}) << "written beyond the end: " << size;
        }
      }
    }
  }
}

TEST(Crc32cTest, ContinuesWhereverDataIsSplit) {
  const std::vector<std::byte> bytes = RandomBytes(30000, 2);
  for (const auto& [name, crc] : Implementations()) {
    const uint32_t whole = crc(bytes, 0);
    for (const size_t at : {0, 1, 7, 8, 9, 191, 192, 577, 1024, 3072, 29999, 30000}) {
      EXPECT_EQ(crc(std::span(bytes).subspan(at), crc(std::span(bytes).first(at), 0)), whole)
          << name << " at " << at;
    }
  }
}

// Whoever changes what is being copied cannot make the CRC differ from what has been written.
TEST(Crc32cTest, IsOfWhatWasWrittenWhileTheSourceChanges) {
  SharedPages shared(kBytes);
  std::atomic<bool> stop = false;
  std::thread flipper([&, bytes = shared.other()] {
    for (size_t at = 0; !stop; at = (at * 5 + 4099) % kBytes) bytes[at] ^= std::byte{0x40};
  });
  std::vector<std::byte> copy(kBytes);
  int torn = 0;
  for (int i = 0; i < 2000 && torn < 100; ++i) {
    const size_t size = kBytes - static_cast<size_t>(i % 700);  // with a rest of every kind
    const uint32_t before = Crc32c(shared.bytes().first(size));
    const Stores stores = i % 2 == 0 ? Stores::kCached : Stores::kStreaming;
    const uint32_t crc = Crc32cCopy(shared.bytes().first(size), copy.data(), 0, stores);
    ASSERT_EQ(crc, Crc32c(std::span(copy).first(size)));
    torn += crc != before ? 1 : 0;
  }
  stop = true;
  flipper.join();
  EXPECT_GT(torn, 0) << "nothing changed meanwhile";
}

}  // namespace
}  // namespace baton::kernels
