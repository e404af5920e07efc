#include "kernels/cache_entry.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/base/check.h"
#include "kernels/cpu/isa/isa.h"
#include "kernels/numeric.h"

namespace baton::kernels {

namespace {

constexpr int kKvDim = 512;
constexpr int kIndexDim = 128;
constexpr int kPlainChannels = 64;  // RoPE channels of a packed KV entry, kept as BF16
constexpr int kCodeChannels = kKvDim - kPlainChannels;
constexpr int kFp8Group = 64;
constexpr int kFp4Group = 32;
constexpr int64_t kPackedPageUnit = 576;
constexpr uint8_t kE8m0Nan = 255;

float Amax(const BFloat16* values, int n) {
  float amax = 0;
  for (int i = 0; i < n; ++i) amax = std::fmax(amax, std::fabs(static_cast<float>(values[i])));
  return amax;
}

bool HasNan(const BFloat16* values, int n) {
  return std::any_of(values, values + n,
                     [](BFloat16 value) { return std::isnan(static_cast<float>(value)); });
}

void EncodeFp8Group(const BFloat16* values, int n, float scale, std::byte* codes) {
  const float inverse = 1.0f / scale;
  for (int i = 0; i < n; ++i) {
    codes[i] = std::byte{EncodeE4m3(static_cast<float>(values[i]) * inverse)};
  }
}

void DecodeFp8Group(const std::byte* codes, int n, float scale, BFloat16* values) {
  Isa().decode_e4m3(reinterpret_cast<const uint8_t*>(codes), n, scale, values);
}

void EncodePacked(const BFloat16* values, EntryAddress to) {
  for (int group = 0; group < kCodeChannels / kFp8Group; ++group) {
    const BFloat16* source = values + group * kFp8Group;
    const float scale = Fp8Scale(Amax(source, kFp8Group));
    EncodeFp8Group(source, kFp8Group, scale, to.values + group * kFp8Group);
    to.scales[group] = std::byte{EncodeE8m0(scale)};
  }
  to.scales[kCodeChannels / kFp8Group] = std::byte{0};
  std::memcpy(to.values + kCodeChannels, values + kCodeChannels, 2 * kPlainChannels);
}

void DecodePacked(EntryAddress from, BFloat16* values) {
  for (int group = 0; group < kCodeChannels / kFp8Group; ++group) {
    const float scale = DecodeE8m0(std::to_integer<uint8_t>(from.scales[group]));
    DecodeFp8Group(from.values + group * kFp8Group, kFp8Group, scale, values + group * kFp8Group);
  }
  std::memcpy(static_cast<void*>(values + kCodeChannels), from.values + kCodeChannels,
              2 * kPlainChannels);
}

void EncodeFp8Index(const BFloat16* values, EntryAddress to) {
  const float scale = Fp8Scale(Amax(values, kIndexDim));
  EncodeFp8Group(values, kIndexDim, scale, to.values);
  std::memcpy(to.scales, &scale, sizeof(scale));
}

void DecodeFp8Index(EntryAddress from, BFloat16* values) {
  float scale = 0;
  std::memcpy(&scale, from.scales, sizeof(scale));
  DecodeFp8Group(from.values, kIndexDim, scale, values);
}

void EncodeFp4Index(const BFloat16* values, EntryAddress to) {
  for (int group = 0; group < kIndexDim / kFp4Group; ++group) {
    const int start = group * kFp4Group;
    const float scale = Fp4Scale(Amax(values + start, kFp4Group));
    const float inverse = 1.0f / scale;
    const bool has_nan = HasNan(values + start, kFp4Group);
    to.scales[group] = std::byte{has_nan ? kE8m0Nan : EncodeE8m0(scale)};
    for (int i = start; i < start + kFp4Group; i += 2) {
      const uint8_t low = EncodeE2m1(static_cast<float>(values[i]) * inverse);
      const uint8_t high = EncodeE2m1(static_cast<float>(values[i + 1]) * inverse);
      to.values[i / 2] = std::byte{static_cast<uint8_t>(low | high << 4)};
    }
  }
}

void DecodeFp4Index(EntryAddress from, BFloat16* values) {
  for (int i = 0; i < kIndexDim; ++i) {
    const float scale = DecodeE8m0(std::to_integer<uint8_t>(from.scales[i / kFp4Group]));
    const uint8_t pair = std::to_integer<uint8_t>(from.values[i / 2]);
    values[i] = BFloat16(DecodeE2m1(i % 2 == 0 ? pair : pair >> 4) * scale);
  }
}

}  // namespace

EntryBytes BytesOfEntry(EntryFormat format, int head_dim) {
  switch (format) {
    case EntryFormat::kBf16:
      return {int64_t{2} * head_dim, 0};
    case EntryFormat::kFp8Packed:
      BATON_CHECK(head_dim == kKvDim) << "head_dim " << head_dim;
      return {kCodeChannels + 2 * kPlainChannels, kCodeChannels / kFp8Group + 1};
    case EntryFormat::kFp8Index:
      BATON_CHECK(head_dim == kIndexDim) << "head_dim " << head_dim;
      return {kIndexDim, sizeof(float)};
    case EntryFormat::kFp4Index:
      BATON_CHECK(head_dim == kIndexDim) << "head_dim " << head_dim;
      return {kIndexDim / 2, kIndexDim / kFp4Group};
  }
  BATON_CHECK(false) << "format " << static_cast<int>(format);
  return {};
}

int64_t PageBytes(EntryFormat format, int head_dim, int entries) {
  const EntryBytes bytes = BytesOfEntry(format, head_dim);
  const int64_t used = entries * (bytes.values + bytes.scales);
  if (format != EntryFormat::kFp8Packed) return used;
  return (used + kPackedPageUnit - 1) / kPackedPageUnit * kPackedPageUnit;
}

int64_t RecordBytes(EntryFormat format, int head_dim) {
  const EntryBytes bytes = BytesOfEntry(format, head_dim);
  return bytes.values + bytes.scales;
}

EntryAddress LocateEntry(const PagedPool& pool, const PageTable& pages, int64_t entry) {
  const EntryBytes bytes = BytesOfEntry(pool.format, pool.head_dim);
  const int64_t page = entry / pool.entries_per_page;
  const int64_t index = entry % pool.entries_per_page;
  BATON_CHECK(entry >= 0 && page < static_cast<int64_t>(pages.pages.size()))
      << "entry " << entry << " beyond a page table of " << pages.pages.size();
  std::byte* base = pool.data + pages.pages[page] * pool.page_bytes;
  EntryAddress address = {.values = base + index * bytes.values};
  if (bytes.scales > 0) {
    address.scales = base + pool.entries_per_page * bytes.values + index * bytes.scales;
  }
  return address;
}

void EncodeEntry(const PagedPool& pool, const PageTable& pages, int64_t entry,
                 const BFloat16* values) {
  const EntryAddress address = LocateEntry(pool, pages, entry);
  switch (pool.format) {
    case EntryFormat::kBf16:
      std::memcpy(address.values, values, sizeof(BFloat16) * pool.head_dim);
      return;
    case EntryFormat::kFp8Packed:
      return EncodePacked(values, address);
    case EntryFormat::kFp8Index:
      return EncodeFp8Index(values, address);
    case EntryFormat::kFp4Index:
      return EncodeFp4Index(values, address);
  }
}

void DecodeEntry(const PagedPool& pool, const PageTable& pages, int64_t entry, BFloat16* values) {
  const EntryAddress address = LocateEntry(pool, pages, entry);
  switch (pool.format) {
    case EntryFormat::kBf16:
      std::memcpy(static_cast<void*>(values), address.values, sizeof(BFloat16) * pool.head_dim);
      return;
    case EntryFormat::kFp8Packed:
      return DecodePacked(address, values);
    case EntryFormat::kFp8Index:
      return DecodeFp8Index(address, values);
    case EntryFormat::kFp4Index:
      return DecodeFp4Index(address, values);
  }
}

}  // namespace baton::kernels
