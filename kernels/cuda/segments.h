#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/segments.h"

struct CUstream_st;

namespace baton::kernels::cuda {

// kernels/segments.h on the device: `segments` [count], what they point to, `staging` and `digest`
// lie in device memory (or in peer or pinned memory that the device reaches). `bytes` is the sum of
// all segments; staging is aligned to 16 bytes. The digest, the same as on the CPU, is *added* to
// *digest, which its owner has set to 0: a launch of its own to do that would cost as much as a
// small frame.
struct SegmentList {
  const Segment* segments = nullptr;
  int count = 0;
  int64_t bytes = 0;
};
void GatherSegments(const SegmentList& list, std::byte* staging, uint64_t* digest,
                    CUstream_st* stream);
void ScatterSegments(const SegmentList& list, const std::byte* staging, uint64_t* digest,
                     CUstream_st* stream);

}  // namespace baton::kernels::cuda
