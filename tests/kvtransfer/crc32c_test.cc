#include "kvtransfer/crc32c.h"

#include <algorithm>
#include <random>
#include <string_view>
#include <vector>

#include "gtest/gtest.h"

namespace baton::kvtransfer {
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
  const std::vector<std::byte> bytes = RandomBytes(3 * 8192 * 2 + 3 * 256 * 2 + 64, 1);
  for (const size_t edge : {size_t{0}, size_t{256}, size_t{768}, size_t{1536}, size_t{24576},
                            size_t{25344}, size_t{49152}}) {
    for (size_t size = edge < 20 ? 0 : edge - 20; size <= edge + 20; ++size) {
      for (size_t offset = 0; offset < 8; ++offset) {
        const auto part = std::span(bytes).subspan(offset, size);
        const uint32_t expected = Crc32cTable(part, 0x12345678);
        EXPECT_EQ(Crc32c(part, 0x12345678), expected) << size << " at " << offset;
        std::vector<std::byte> copy(size + 1, std::byte{0x5A});
        EXPECT_EQ(Crc32cCopy(part, copy.data(), 0x12345678), expected) << size << " at " << offset;
        EXPECT_TRUE(std::equal(part.begin(), part.end(), copy.begin())) << size;
        EXPECT_EQ(copy[size], std::byte{0x5A}) << "written beyond the end: " << size;
      }
    }
  }
}

TEST(Crc32cTest, ContinuesWhereverDataIsSplit) {
  const std::vector<std::byte> bytes = RandomBytes(30000, 2);
  for (const auto& [name, crc] : Implementations()) {
    const uint32_t whole = crc(bytes, 0);
    for (const size_t at : {0, 1, 7, 8, 9, 255, 256, 769, 8192, 24576, 29999, 30000}) {
      EXPECT_EQ(crc(std::span(bytes).subspan(at), crc(std::span(bytes).first(at), 0)), whole)
          << name << " at " << at;
    }
  }
}

}  // namespace
}  // namespace baton::kvtransfer
