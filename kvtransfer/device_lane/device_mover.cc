#include "kvtransfer/device_lane/device_mover.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "common/base/check.h"
#include "kernels/cuda/segments.h"
#include "kernels/runtime/buffer.h"
#include "kernels/runtime/stream.h"

namespace baton::kvtransfer {
namespace {

using kernels::DeviceBuffer;
using kernels::PinnedBuffer;

class DeviceMover final : public RecordMover {
 public:
  DeviceMover() { Reserve(kFirstRoom); }

  uint64_t Gather(std::span<const kernels::Segment> segments, std::byte* staging) override {
    const kernels::cuda::SegmentList list = Upload(segments);
    kernels::cuda::GatherSegments(list, staging, device_.As<uint64_t>(), stream_.get());
    return Digest();
  }
  uint64_t Scatter(std::span<const kernels::Segment> segments, const std::byte* staging) override {
    const kernels::cuda::SegmentList list = Upload(segments);
    kernels::cuda::ScatterSegments(list, staging, device_.As<uint64_t>(), stream_.get());
    return Digest();
  }
  // Both through page-locked memory: copies of other host memory wait for more than themselves.
  void Write(std::span<const std::byte> from, std::byte* staging) override {
    for (; !from.empty();) {
      const std::span<const std::byte> piece = from.first(std::min(from.size(), Room()));
      std::memcpy(host_.data(), piece.data(), piece.size());
      kernels::CopyAsync(staging, host_.data(), std::ssize(piece), stream_.get());
      stream_.Synchronize();
      from = from.subspan(piece.size());
      staging += piece.size();
    }
  }
  void Read(const std::byte* staging, std::span<std::byte> to) override {
    for (; !to.empty();) {
      const std::span<std::byte> piece = to.first(std::min(to.size(), Room()));
      kernels::CopyAsync(host_.data(), staging, std::ssize(piece), stream_.get());
      stream_.Synchronize();
      std::memcpy(piece.data(), host_.data(), piece.size());
      to = to.subspan(piece.size());
      staging += piece.size();
    }
  }

 private:
  // Both buffers: the digest, then the segments, aligned to 16 bytes.
  static constexpr int64_t kSegmentsAt = 16;

  kernels::cuda::SegmentList Upload(std::span<const kernels::Segment> segments) {
    const auto bytes = kSegmentsAt + static_cast<int64_t>(segments.size_bytes());
    Reserve(bytes);
    *host_.As<uint64_t>() = 0;
    std::memcpy(host_.data() + kSegmentsAt, segments.data(), segments.size_bytes());
    kernels::CopyAsync(device_.data(), host_.data(), bytes, stream_.get());
    const kernels::Segment& last = segments.back();
    return {.segments = reinterpret_cast<const kernels::Segment*>(device_.data() + kSegmentsAt),
            .count = static_cast<int>(segments.size()),
            .bytes = last.offset + last.bytes};
  }

  uint64_t Digest() {
    kernels::CopyAsync(host_.data(), device_.data(), sizeof(uint64_t), stream_.get());
    stream_.Synchronize();
    return *host_.As<uint64_t>();
  }

  size_t Room() const { return static_cast<size_t>(host_.size()); }

  void Reserve(int64_t bytes) {
    if (bytes <= host_.size()) return;
    const int64_t room = 2 * bytes;
    std::optional<PinnedBuffer> host = PinnedBuffer::Allocate(room);
    std::optional<DeviceBuffer> device = DeviceBuffer::Allocate(room);
    BATON_CHECK(host && device) << "no memory for the addresses of " << bytes
                                << " bytes of records";
    host_ = *std::move(host);
    device_ = *std::move(device);
  }

  static constexpr int64_t kFirstRoom = int64_t{1} << 20;  // 87 thousand segments

  kernels::Stream stream_;
  PinnedBuffer host_;
  DeviceBuffer device_;
};

}  // namespace

std::unique_ptr<RecordMover> MakeDeviceMover() { return std::make_unique<DeviceMover>(); }

}  // namespace baton::kvtransfer
