#include "kvtransfer/record_mover.h"

#include <cstring>

#include "kernels/parallel.h"

namespace baton::kvtransfer {
namespace {

class HostMover final : public RecordMover {
 public:
  uint64_t Gather(std::span<const kernels::Segment> segments, std::byte* staging) override {
    return kernels::GatherSegments(segments, staging, one_thread_);
  }
  uint64_t Scatter(std::span<const kernels::Segment> segments, const std::byte* staging) override {
    return kernels::ScatterSegments(segments, staging, one_thread_);
  }
  void Write(std::span<const std::byte> from, std::byte* staging) override {
    std::memcpy(staging, from.data(), from.size());
  }
  void Read(const std::byte* staging, std::span<std::byte> to) override {
    std::memcpy(to.data(), staging, to.size());
  }

 private:
  kernels::ThreadPool one_thread_{1};
};

}  // namespace

std::unique_ptr<RecordMover> MakeHostMover() { return std::make_unique<HostMover>(); }

}  // namespace baton::kvtransfer
