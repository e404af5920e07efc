#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "kernels/segments.h"

namespace baton::kvtransfer {

// The copies of a transport whose frames lie in staging memory that the CPU may not be able to
// touch. Calls return when the bytes are where they belong. One thread.
class RecordMover {
 public:
  virtual ~RecordMover() = default;

  // As kernels/segments.h says, with digest kMulSum64. `staging` is aligned to 16 bytes.
  virtual uint64_t Gather(std::span<const kernels::Segment> segments, std::byte* staging) = 0;
  virtual uint64_t Scatter(std::span<const kernels::Segment> segments,
                           const std::byte* staging) = 0;

  // Between staging and ordinary memory; for heads of frames.
  virtual void Write(std::span<const std::byte> from, std::byte* staging) = 0;
  virtual void Read(const std::byte* staging, std::span<std::byte> to) = 0;
};

// Of memory that the CPU can touch.
std::unique_ptr<RecordMover> MakeHostMover();

}  // namespace baton::kvtransfer
