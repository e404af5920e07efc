#pragma once

#include <cstdint>

// Tensor-core products of a warpgroup (four consecutive warps, the first a multiple of four): the
// right operand in shared memory, the left one there or in registers. sm_90a only.

namespace baton::kernels::cuda {

// Operands are tiles as SwizzledOffset (mma.cuh) lays them out. The descriptor names the first byte
// of a 64 x 16 (A) or 16 x kN (B) slice:
//   channels are the summed dimension ("rows" side): slice k of a block starts 32 k bytes in; rows
//     follow each other in groups of 8, 1,024 bytes apart;
//   rows are the summed dimension (B only, kTransposedB): slice k starts 2,048 k bytes in; the next
//     64 channels lie `block_bytes` further on.
__device__ inline uint64_t OperandDescriptor(uint32_t address, int block_bytes) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  constexpr uint64_t kGroupOf8Rows = uint64_t{1024 >> 4} << 32;
  return kSwizzle128 | kGroupOf8Rows | static_cast<uint64_t>(block_bytes >> 4) << 16 |
         ((address & 0x3ffffu) >> 4);
}
__device__ inline uint64_t ChannelsSummed(uint32_t address) {
  return OperandDescriptor(address, 16);
}
__device__ inline uint64_t RowsSummed(uint32_t address, int block_bytes) {
  return OperandDescriptor(address, block_bytes);
}
// The slice `bytes` further on. One descriptor and constant steps from it cost next to nothing; a
// descriptor made anew for every product keeps small ones waiting.
__device__ inline uint64_t Advanced(uint64_t descriptor, int bytes) {
  return descriptor + static_cast<uint64_t>(bytes >> 4);
}
// SharedAddress of something that is the same for all lanes, which the compiler cannot know where a
// warp's role depends on threadIdx.
__device__ inline uint32_t UniformSharedAddress(const void* pointer) {
  return __shfl_sync(0xffffffffu, static_cast<uint32_t>(__cvta_generic_to_shared(pointer)), 0);
}

// Before the first product after the accumulators were touched by ordinary instructions.
__device__ inline void WgmmaFence() { asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory"); }
__device__ inline void WgmmaCommit() {
  asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}
template <int kPending>
__device__ inline void WgmmaWait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(kPending) : "memory");
}

// Products read and write registers while the program goes on, which the compiler does not know: it
// might compute an operand later, read sums earlier, or give the registers to what comes next.
template <int kSize>
__device__ inline void KeepUntilHere(float (&values)[kSize]) {
#pragma unroll
  for (int i = 0; i < kSize; ++i) asm volatile("" : "+f"(values[i]));
}
template <int kSize>
__device__ inline void KeepUntilHere(uint32_t (&values)[kSize]) {
#pragma unroll
  for (int i = 0; i < kSize; ++i) asm volatile("" : "+r"(values[i]));
}

// Registers per thread of the calling warps; see "setmaxnreg" for when the compiler obeys.
template <int kRegisters>
__device__ inline void ReleaseRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ inline void ClaimRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(kRegisters));
}

// d[64 x kN] (+)= a b in FP32, kN = 2 * the number of accumulators; accumulate false: d is
// overwritten.
//
//   Wgmma      BF16: a[64 x 16], b[16 x kN]. kTransposedB: b is a slice as RowsSummed describes it.
//   WgmmaFp8   E4M3: a[64 x 32], b[32 x kN]. Slices are as ChannelsSummed describes them, of bytes.
//              The tensor core keeps about 14 bits of a sum's largest term, so sums over many
//              columns are to be added up outside of it.
//
// Warp w of the group and lane i hold rows 16 w + i / 4 and 8 further on:
//   of d columns 8 j + 2 (i % 4), + 1: the first row's in d[4 j], d[4 j + 1], the second's in
//     d[4 j + 2], d[4 j + 3];
//   of an `a` in registers words of four bytes, which are two columns of BF16 or four of E4M3: word
//     i % 4 of the first row in a[0], of the second in a[1]; word i % 4 + 4 of them in a[2], a[3].
//     So lie the accumulators of 16 columns, once they are packed to BF16.
// Neither d nor such an `a` may be touched before WgmmaWait.
//
// Asm spells every operand out, by its number: what differs between numbers of accumulators and
// what differs between products are each said once below.

// Names of the first operands, which are the accumulators.
#define BATON_SUMS_4 "%0, %1, %2, %3"
#define BATON_SUMS_8 BATON_SUMS_4 ", %4, %5, %6, %7"
#define BATON_SUMS_12 BATON_SUMS_8 ", %8, %9, %10, %11"
#define BATON_SUMS_16 BATON_SUMS_12 ", %12, %13, %14, %15"
#define BATON_SUMS_32 \
  BATON_SUMS_16       \
  ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define BATON_SUMS_36 \
  BATON_SUMS_32       \
  ", %32, %33, %34, %35"
#define BATON_SUMS_48 \
  BATON_SUMS_36       \
  ", %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define BATON_SUMS_64 \
  BATON_SUMS_48       \
  ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define BATON_SUMS_128                                                                           \
  BATON_SUMS_64                                                                                  \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"             \
  ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"             \
  ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111" \
  ", %112, %113, %114, %115, %116, %117, %118, %119"                                             \
  ", %120, %121, %122, %123, %124, %125, %126, %127"

// And those operands.
#define BATON_GIVE_4(d, i) "+f"(d[i]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3])
#define BATON_GIVE_8(d, i) BATON_GIVE_4(d, i), BATON_GIVE_4(d, (i) + 4)
#define BATON_GIVE_12(d, i) BATON_GIVE_8(d, i), BATON_GIVE_4(d, (i) + 8)
#define BATON_GIVE_16(d, i) BATON_GIVE_8(d, i), BATON_GIVE_8(d, (i) + 8)
#define BATON_GIVE_32(d, i) BATON_GIVE_16(d, i), BATON_GIVE_16(d, (i) + 16)
#define BATON_GIVE_36(d, i) BATON_GIVE_32(d, i), BATON_GIVE_4(d, (i) + 32)
#define BATON_GIVE_48(d, i) BATON_GIVE_32(d, i), BATON_GIVE_16(d, (i) + 32)
#define BATON_GIVE_64(d, i) BATON_GIVE_32(d, i), BATON_GIVE_32(d, (i) + 32)
#define BATON_GIVE_128(d, i) BATON_GIVE_64(d, i), BATON_GIVE_64(d, (i) + 64)

// `a` to `accumulate` name operands; `more` is what the instruction ends with.
#define BATON_WGMMA_TEXT(shape, kSums, a, b, accumulate, more) \
  "{\n.reg .pred p;\n"                                         \
  "setp.ne.b32 p, " accumulate                                 \
  ", 0;\n"                                                     \
  "wgmma.mma_async.sync.aligned." shape                        \
  "\n"                                                         \
  "{" BATON_SUMS_##kSums "}, " a ", " b ", p, 1, 1" more ";\n}\n"
#define BATON_WGMMA_REGISTERS(a) "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])

// Of kSums accumulators; i0 to i6 name the operands behind them.
#define BATON_WGMMA(kSums, shape, i0, i1, i2, i3, i4, i5, i6)                                      \
  template <bool kTransposedB>                                                                     \
  __device__ inline void Wgmma(float(&d)[kSums], uint64_t a, uint64_t b, bool accumulate) {        \
    asm volatile(BATON_WGMMA_TEXT(shape "k16.f32.bf16.bf16", kSums, i0, i1, i2, ", 0, " i3)        \
                 : BATON_GIVE_##kSums(d, 0)                                                        \
                 : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)), "n"(kTransposedB ? 1 : 0));  \
  }                                                                                                \
  template <bool kTransposedB>                                                                     \
  __device__ inline void Wgmma(float(&d)[kSums], const uint32_t* a, uint64_t b, bool accumulate) { \
    asm volatile(BATON_WGMMA_TEXT(shape "k16.f32.bf16.bf16", kSums,                                \
                                  "{" i0 ", " i1 ", " i2 ", " i3 "}", i4, i5, ", " i6)             \
                 : BATON_GIVE_##kSums(d, 0)                                                        \
                 : BATON_WGMMA_REGISTERS(a), "l"(b), "r"(static_cast<int>(accumulate)),            \
                   "n"(kTransposedB ? 1 : 0));                                                     \
  }                                                                                                \
  __device__ inline void WgmmaFp8(float(&d)[kSums], uint64_t a, uint64_t b, bool accumulate) {     \
    asm volatile(BATON_WGMMA_TEXT(shape "k32.f32.e4m3.e4m3", kSums, i0, i1, i2, "")                \
                 : BATON_GIVE_##kSums(d, 0)                                                        \
                 : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)));                             \
  }                                                                                                \
  __device__ inline void WgmmaFp8(float(&d)[kSums], const uint32_t* a, uint64_t b,                 \
                                  bool accumulate) {                                               \
    asm volatile(BATON_WGMMA_TEXT(shape "k32.f32.e4m3.e4m3", kSums,                                \
                                  "{" i0 ", " i1 ", " i2 ", " i3 "}", i4, i5, "")                  \
                 : BATON_GIVE_##kSums(d, 0)                                                        \
                 : BATON_WGMMA_REGISTERS(a), "l"(b), "r"(static_cast<int>(accumulate)));           \
  }
BATON_WGMMA(4, "m64n8", "%4", "%5", "%6", "%7", "%8", "%9", "%10")
BATON_WGMMA(8, "m64n16", "%8", "%9", "%10", "%11", "%12", "%13", "%14")
BATON_WGMMA(12, "m64n24", "%12", "%13", "%14", "%15", "%16", "%17", "%18")
BATON_WGMMA(16, "m64n32", "%16", "%17", "%18", "%19", "%20", "%21", "%22")
BATON_WGMMA(32, "m64n64", "%32", "%33", "%34", "%35", "%36", "%37", "%38")
BATON_WGMMA(36, "m64n72", "%36", "%37", "%38", "%39", "%40", "%41", "%42")
BATON_WGMMA(48, "m64n96", "%48", "%49", "%50", "%51", "%52", "%53", "%54")
BATON_WGMMA(64, "m64n128", "%64", "%65", "%66", "%67", "%68", "%69", "%70")
BATON_WGMMA(128, "m64n256", "%128", "%129", "%130", "%131", "%132", "%133", "%134")

}  // namespace baton::kernels::cuda
