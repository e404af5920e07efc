#include "common/rpc/message_memory.h"

#include <thread>

#include <malloc.h>

namespace baton::rpc {

void KeepMessageMemory() {
  // Setting one of them stops both from following what is freed, which they else do up to this.
  constexpr int kKept = 32 << 20;
  mallopt(M_MMAP_THRESHOLD, kKept);
  mallopt(M_TRIM_THRESHOLD, kKept);
  // By itself glibc has fewer on small machines, which setting the limit would give more.
  constexpr unsigned kHeaps = 32;
  constexpr unsigned kHeapsOfCore = 8;
  if (kHeapsOfCore * std::thread::hardware_concurrency() > kHeaps) mallopt(M_ARENA_MAX, kHeaps);
}

}  // namespace baton::rpc
