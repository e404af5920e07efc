#include "common/rpc/message_memory.h"

#include <malloc.h>

namespace baton::rpc {

void KeepMessageMemory() {
  // Setting one of them stops both from following what is freed, which they else do up to this.
  constexpr int kKept = 32 << 20;
  mallopt(M_MMAP_THRESHOLD, kKept);
  mallopt(M_TRIM_THRESHOLD, kKept);
}

}  // namespace baton::rpc
