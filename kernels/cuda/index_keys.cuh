#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cache_view.h"
#include "kernels/cuda/batch.h"
#include "kernels/cuda/device/async.cuh"
#include "kernels/cuda/device/mma.cuh"
#include "kernels/cuda/device/numeric.cuh"
#include "kernels/cuda/device/vector.cuh"

// Index keys on their way from a paged pool to a tile of BF16 in shared memory, as the tensor cores
// want it: two blocks of 64 channels (device/mma.cuh).

namespace baton::kernels::cuda {

inline constexpr int kKeyBytes = 256;  // of one key in a tile

// Where an entry's value and scale bytes lie in a page. A policy only so that tests can build the
// readers that are known to be wrong.
struct PackedPage {
  __device__ static int Values(int index, int /*entries*/, int value_bytes, int /*scale_bytes*/) {
    return index * value_bytes;
  }
  __device__ static int Scales(int index, int entries, int value_bytes, int scale_bytes) {
    return entries * value_bytes + index * scale_bytes;
  }
};

// The keys of one sequence.
struct KeyPages {
  const std::byte* data;
  int64_t page_bytes;
  int entries_per_page;  // a power of two
  int page_shift;        // its logarithm
  const int32_t* pages;  // of the sequence

  __device__ const std::byte* Page(int entry) const {
    return data + pages[entry >> page_shift] * page_bytes;
  }
  __device__ int IndexInPage(int entry) const { return entry & (entries_per_page - 1); }
};

template <int kRows>
__device__ inline int TileOffset(int row, int piece) {
  return (piece >> 3) * kRows * 128 + SwizzledOffset(row, piece & 7);
}

// kThreads threads fill tiles of kRows keys. Issue starts the copies of a tile; where these are not
// direct, Finish, once they have arrived (WaitCopies), turns them into BF16. Both are called by all
// of the threads, which share nothing in between. `raw` is what a format needs until then,
// kRawBytes a tile.
template <EntryFormat kFormat, typename Page, int kRows, int kThreads>
struct KeyTile;

template <typename Page, int kRows, int kThreads>
struct KeyTile<EntryFormat::kBf16, Page, kRows, kThreads> {
  static constexpr bool kDirect = true;  // copies go to the tile itself
  static constexpr int kRawBytes = 0;

  // Entries [first, first + kRows), zeros from `limit` on.
  __device__ static void Issue(const KeyPages& keys, int first, int limit, int thread,
                               uint8_t* tile) {
    constexpr int kKeysAtOnce = kThreads / 16;
    const int piece = thread % 16;
    const std::byte* page = nullptr;
#pragma unroll
    for (int i = 0; i < kRows / kKeysAtOnce; ++i) {
      const int row = thread / 16 + i * kKeysAtOnce;
      const int entry = first + row;
      const bool valid = entry < limit;
      // Tiles start at multiples of kRows: with pages of 64 or more, 64 rows share one.
      if (i * kKeysAtOnce % 64 == 0 || keys.entries_per_page < 64) {
        page = valid ? keys.Page(entry) : keys.data;
      }
      const std::byte* source =
          page + Page::Values(keys.IndexInPage(entry), keys.entries_per_page, kKeyBytes, 0) +
          piece * 16;
      CopyAsync16(SharedAddress(tile + TileOffset<kRows>(row, piece)), source, valid);
    }
  }
};

// Codes and scales of the quantised formats wait in `raw`: each thread's own 16-byte pieces and,
// for each, the four bytes that hold its scale.
template <typename Format, typename Page, int kRows, int kThreads>
struct QuantizedKeyTile {
  static constexpr bool kDirect = false;
  static constexpr int kPiecesPerKey = Format::kValueBytes / 16;
  static constexpr int kPieces = kRows * kPiecesPerKey / kThreads;  // of a thread
  static constexpr int kRawBytes = kPieces * kThreads * 20;
  static_assert(kPieces * kThreads == kRows * kPiecesPerKey);

  __device__ static void Issue(const KeyPages& keys, int first, int limit, int thread,
                               uint8_t* raw) {
    const int piece = thread % kPiecesPerKey;
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const int entry = first + Row(thread, i);
      const bool valid = entry < limit;
      const std::byte* values = keys.data;
      const std::byte* scale = keys.data;
      if (valid) {
        const std::byte* page = keys.Page(entry);
        const int index = keys.IndexInPage(entry);
        values = page +
                 Page::Values(index, keys.entries_per_page, Format::kValueBytes, sizeof(float)) +
                 piece * 16;
        scale =
            page + Page::Scales(index, keys.entries_per_page, Format::kValueBytes, sizeof(float));
      }
      CopyAsync16(SharedAddress(Codes(raw, thread, i)), values, valid);
      CopyAsync4(SharedAddress(Scale(raw, thread, i)), scale, valid);
    }
  }

  __device__ static void Finish(const uint8_t* raw, int thread, uint8_t* tile) {
    const int piece = thread % kPiecesPerKey;
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const Vector16 codes = Load16(Codes(raw, thread, i));
      const uint32_t scale = *reinterpret_cast<const uint32_t*>(Scale(raw, thread, i));
      const uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
      Format::Decode(words, scale, piece, [&](int j, const Vector16& bf16) {
        constexpr int kWide = 16 / kPiecesPerKey;  // pieces of BF16 that one piece of codes becomes
        Store16(tile + TileOffset<kRows>(Row(thread, i), piece * kWide + j), bf16);
      });
    }
  }

 private:
  __device__ static int Row(int thread, int i) {
    return thread / kPiecesPerKey + i * (kThreads / kPiecesPerKey);
  }
  template <typename Byte>
  __device__ static Byte* Codes(Byte* raw, int thread, int i) {
    return raw + (i * kThreads + thread) * 16;
  }
  template <typename Byte>
  __device__ static Byte* Scale(Byte* raw, int thread, int i) {
    return raw + kPieces * kThreads * 16 + (i * kThreads + thread) * 4;
  }
};

struct Fp8Keys {
  static constexpr int kValueBytes = 128;

  // Calls emit(j, eight BF16) for j = 0, 1. Codes times a power of two are BF16 values.
  template <typename Emit>
  __device__ static void Decode(const uint32_t (&words)[4], uint32_t scale_bits, int /*piece*/,
                                Emit&& emit) {
    const float scale = __uint_as_float(scale_bits);
    uint32_t pairs[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float2 values = UnpackE4m3(static_cast<uint16_t>(words[i / 2] >> (i % 2 * 16)));
      pairs[i] = PackBf16(values.x * scale, values.y * scale);
    }
    emit(0, Vector16{pairs[0], pairs[1], pairs[2], pairs[3]});
    emit(1, Vector16{pairs[4], pairs[5], pairs[6], pairs[7]});
  }
};

struct Fp4Keys {
  static constexpr int kValueBytes = 64;

  // A piece of codes is one group of 32 channels: its scale is byte `piece`.
  template <typename Emit>
  __device__ static void Decode(const uint32_t (&words)[4], uint32_t scales, int piece,
                                Emit&& emit) {
    const float scale = DecodeE8m0((scales >> (8 * piece)) & 0xffu);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      uint32_t pairs[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const uint32_t pair = words[j] >> (8 * i);
        pairs[i] = PackBf16(Value(pair) * scale, Value(pair >> 4) * scale);
      }
      emit(j, Vector16{pairs[0], pairs[1], pairs[2], pairs[3]});
    }
  }

 private:
  // The nibble's fields in FP32's own place are the value times 2^-126.
  __device__ static float Value(uint32_t nibble) {
    return __uint_as_float((nibble & 8u) << 28 | (nibble & 7u) << 22) * 0x1p126f;
  }
};

template <typename Page, int kRows, int kThreads>
struct KeyTile<EntryFormat::kFp8Index, Page, kRows, kThreads>
    : QuantizedKeyTile<Fp8Keys, Page, kRows, kThreads> {};
template <typename Page, int kRows, int kThreads>
struct KeyTile<EntryFormat::kFp4Index, Page, kRows, kThreads>
    : QuantizedKeyTile<Fp4Keys, Page, kRows, kThreads> {};

}  // namespace baton::kernels::cuda
