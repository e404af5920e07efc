#pragma once

#include <cstdint>

// Moving data into shared memory behind the threads' back, and the barriers that say when it is
// there. Everything here works on every architecture from sm_80 (copies) or sm_90 (the rest) on.

namespace baton::kernels::cuda {

__device__ inline uint32_t SharedAddress(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Of what does not change while it is read so.
__device__ inline uint4 LoadShared16(uint32_t from) {
  uint4 v;
  asm("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];\n"
      : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
      : "r"(from));
  return v;
}

// 16 bytes, past L1; zeros where `valid` is false (the source is then not read).
__device__ inline void CopyAsync16(uint32_t to, const void* from, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(to), "l"(from),
               "r"(valid ? 16 : 0)
               : "memory");
}
// 4 bytes, through L1: for scales, which neighbours load too.
__device__ inline void CopyAsync4(uint32_t to, const void* from, bool valid) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;\n" ::"r"(to), "l"(from),
               "r"(valid ? 4 : 0)
               : "memory");
}
// How long L2 keeps what a copy reads.
struct L2Policy {
  uint64_t bits;
};
__device__ inline L2Policy EvictFirst() {
  L2Policy policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;\n" : "=l"(policy.bits));
  return policy;
}
__device__ inline L2Policy EvictLast() {
  L2Policy policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;\n" : "=l"(policy.bits));
  return policy;
}
// 16 bytes, past L1.
__device__ inline void CopyAsync16(uint32_t to, const void* from, const L2Policy& policy) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;\n" ::"r"(to),
               "l"(from), "l"(policy.bits)
               : "memory");
}
__device__ inline void CopyAsync16(void* to, const void* from, const L2Policy& policy) {
  CopyAsync16(SharedAddress(to), from, policy);
}
__device__ inline void CommitCopies() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }
// Until at most kPending of the calling thread's committed groups are still on their way.
template <int kPending>
__device__ inline void WaitCopies() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kPending) : "memory");
}

// `barrier` counts an arrival of the calling thread once all its copies so far have landed; the
// thread itself goes on.
__device__ inline void ArriveWhenCopied(uint64_t* barrier) {
  asm volatile(
      "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];\n" ::"r"(SharedAddress(barrier))
      : "memory");
}

// Between ordinary stores or cp.async to shared memory and wgmma that reads it: by each writing
// thread before the barrier that tells the reader, or by each reading thread after it.
__device__ inline void FenceForTensorCores() {
  asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
}

// An mbarrier in shared memory: completes a phase whenever `arrivals` threads have arrived. The
// first phase has parity 0; waiting for parity 1 on a fresh barrier returns at once.
__device__ inline void InitBarrier(uint64_t* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(SharedAddress(barrier)),
               "r"(arrivals)
               : "memory");
}
__device__ inline void Arrive(uint64_t* barrier) {
  asm volatile(
      "{\n"
      ".reg .b64 state;\n"
      "mbarrier.arrive.shared::cta.b64 state, [%0];\n"
      "}\n" ::"r"(SharedAddress(barrier))
      : "memory");
}
__device__ inline void Wait(uint64_t* barrier, int parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra finished;\n"
      "bra again;\n"
      "finished:\n"
      "}\n" ::"r"(SharedAddress(barrier)),
      "r"(parity)
      : "memory");
}

// Barrier `id` (1 to 15; 0 is __syncthreads) of `threads` threads of the block.
__device__ inline void SyncThreads(int id, int threads) {
  asm volatile("bar.sync %0, %1;\n" ::"r"(id), "r"(threads) : "memory");
}

// Counts for that barrier without waiting.
__device__ inline void ArriveThreads(int id, int threads) {
  asm volatile("bar.arrive %0, %1;\n" ::"r"(id), "r"(threads) : "memory");
}

// A ring of kStages buffers between writers and readers. Use n (counted from 0) of the ring takes
// stage n % kStages: writers wait until it is empty, readers until it is full.
template <int kStages>
struct StageRing {
  uint64_t full[kStages];
  uint64_t empty[kStages];

  // One thread, before a __syncthreads.
  __device__ void Init(int writers, int readers) {
    for (int i = 0; i < kStages; ++i) {
      InitBarrier(&full[i], writers);
      InitBarrier(&empty[i], readers);
    }
    asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
  }
  __device__ void WaitEmpty(int n) { Wait(&empty[n % kStages], (n / kStages & 1) ^ 1); }
  __device__ void WaitFull(int n) { Wait(&full[n % kStages], n / kStages & 1); }
  __device__ void ArriveFull(int n) { Arrive(&full[n % kStages]); }
  __device__ void ArriveEmpty(int n) { Arrive(&empty[n % kStages]); }
};

}  // namespace baton::kernels::cuda
