#include "engine/cuda/arena.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "common/base/check.h"

namespace baton::engine::cuda {
namespace {

// Calls visit(part, offset within the buffer) for every part.
template <typename Visit>
void ForEachPart(const std::vector<ArenaPlan::Part>& parts, Visit visit) {
  int64_t offset = 0;
  for (const ArenaPlan::Part& part : parts) {
    visit(part, offset);
    offset += part.bytes;
  }
}

}  // namespace

void ArenaPlan::Add(std::vector<Part> parts) {
  Buffer buffer{.parts = std::move(parts)};
  Part& last = buffer.parts.back();
  last.bytes = (last.bytes + kAlignment - 1) / kAlignment * kAlignment;
  for (const Part& part : buffer.parts) {
    BATON_CHECK(part.bytes % kAlignment == 0) << "a part of " << part.bytes << " bytes";
    buffer.bytes += part.bytes;
  }
  buffers_.push_back(std::move(buffer));
}

void ArenaPlan::Place() {
  std::vector<size_t> order(buffers_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto rank = [&](size_t i) {
    return std::pair(buffers_[i].parts.size(), buffers_[i].bytes);
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return rank(a) > rank(b); });
  std::vector<const Buffer*> placed;
  bytes_ = 0;
  for (const size_t i : order) {
    buffers_[i].offset = LowestPlace(buffers_[i], placed);
    bytes_ = std::max(bytes_, buffers_[i].offset + buffers_[i].bytes);
    placed.push_back(&buffers_[i]);
  }
}

int64_t ArenaPlan::LowestPlace(const Buffer& buffer, const std::vector<const Buffer*>& placed) {
  // Where it cannot begin: before `end`, from behind `begin` on.
  struct Barred {
    int64_t begin = 0;
    int64_t end = 0;
  };
  std::vector<Barred> barred;
  for (const Buffer* other : placed) {
    ForEachPart(other->parts, [&](const Part& theirs, int64_t their_offset) {
      ForEachPart(buffer.parts, [&](const Part& ours, int64_t our_offset) {
        if (ours.bytes == 0 || theirs.bytes == 0 || !ours.in_use.Meets(theirs.in_use)) return;
        const int64_t begin = other->offset + their_offset - our_offset;
        barred.push_back({begin - ours.bytes, begin + theirs.bytes});
      });
    });
  }
  std::sort(barred.begin(), barred.end(),
            [](const Barred& a, const Barred& b) { return a.begin < b.begin; });
  int64_t offset = 0;
  for (const Barred& range : barred) {
    if (range.begin < offset) offset = std::max(offset, range.end);
  }
  return offset;
}

kernels::cuda::MutableFp8Rows Carver::Fp8(int64_t rows, int64_t cols, Lifetime in_use) {
  constexpr int64_t kScaleGroup = 128;
  return {.codes = Take<uint8_t>(rows * cols, in_use),
          .scales = Take<float>(cols / kScaleGroup * rows, in_use),
          .rows = rows,
          .cols = cols,
          .stride = cols,
          .scale_stride = rows};
}

std::byte* Carver::TakeParts(std::vector<ArenaPlan::Part> parts) {
  if (following_ != nullptr) return memory_ + following_->offset(taken_++);
  adding_->Add(std::move(parts));
  return nullptr;
}

}  // namespace baton::engine::cuda
