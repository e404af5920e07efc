#include <algorithm>

#include "kernels/cuda/device/async.cuh"
#include "kernels/cuda/device/entry_format.cuh"
#include "kernels/cuda/device/entry_target.cuh"
#include "kernels/cuda/device/index_format.cuh"
#include "kernels/cuda/device/index_rows.cuh"
#include "kernels/cuda/index_store.h"
#include "kernels/runtime/device.h"
#include "kernels/runtime/error.h"

namespace baton::kernels::cuda {

namespace {

constexpr int kWarps = 4;
constexpr int kBlockRows = kWarps * IndexRows::kRows;
constexpr int kResident = 4;  // blocks of a multiprocessor: what registers allow
// Blocks that follow one another on each place: schedulers favour some warps, whose places would
// fall empty long before the end.
constexpr int kRounds = 4;

// A warp's rows on their way from memory, through L2: the next ones come while these are computed.
class RowFetcher {
 public:
  __device__ explicit RowFetcher(RowFragments::Buffer& buffer)
      : to_(Held(SharedAddress(buffer.rows[IndexRows::Row()] + IndexRows::Quarter() * 16))) {}

  // Starts loading the lane's share of rows `number` and `number` + 8 of all; `share` is that of
  // the former, which is its own.
  __device__ void Start(const BFloat16* share, int number, int rows) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (number + 8 * i >= rows) break;
#pragma unroll
      for (int part = 0; part < 4; ++part) {
        CopyAsync16(to_ + 8 * i * RowFragments::kStride + 64 * part,
                    share + 8 * i * IndexRows::kChannels + 32 * part, once_);
      }
    }
    CommitCopies();
  }

 private:
  uint32_t to_;
  L2Policy once_ = EvictFirst();
};

// Where rows go nowhere their entries may be anything.
__device__ float PositionOf(const EntryTarget& target, const EntryRope& rope) {
  const uint32_t position = static_cast<uint32_t>(target.entry) * static_cast<uint32_t>(rope.step);
  return static_cast<float>(static_cast<int32_t>(position));
}

// Where the lane's FP4 group of an entry goes.
struct GroupPlace {
  bool is_somewhere;
  std::byte* codes;
  std::byte* scale;
};

// EncodeEntry of that group. With kSimulate what is stored was first rounded to the grid of the
// reference numerics, which is the format's own: rounding and coding are one.
template <bool kSimulate>
__device__ void StoreGroup(const Fp4Group& group, const GroupPlace& place) {
  const Fp4Scales scales = ScalesOf<kSimulate>(LargestOfGroup(group));
  const E2m1Lines lines = LinesOf(scales, 0);
  uint32_t codes[4];
#pragma unroll
  for (int chunk = 0; chunk < 4; ++chunk) {
    codes[chunk] = EncodeE2m1Chunk<kSimulate>(group[chunk], lines);
  }
  if (!place.is_somewhere) return;
  StoreStreaming(reinterpret_cast<Vector16*>(place.codes),
                 {codes[0], codes[1], codes[2], codes[3]});
  *place.scale = static_cast<std::byte>(scales.stored >> 7);  // an exponent field
}

template <Numerics kNumerics>
__global__ void __launch_bounds__(32 * kWarps, kResident)
    StoreFp4KeysKernel(const StoreEntriesParams params) {
  __shared__ RowFragments::Buffer buffers[kWarps];
  __shared__ IndexRowOperands shared_operands;
  RowFetcher fetcher(buffers[threadIdx.x / 32]);
  const RowFragments fragments(buffers[threadIdx.x / 32]);
  const PagedPool& pool = params.pool;
  const PageDivider divider(pool);
  const auto rows = static_cast<int>(params.rows);
  const int stride = static_cast<int>(gridDim.x) * kBlockRows;
  const int warp = static_cast<int>(blockIdx.x * kWarps + threadIdx.x / 32);
  int row = warp * IndexRows::kRows + IndexRows::Row();
  const BFloat16* share =
      params.pooled + int64_t{row} * IndexRows::kChannels + IndexRows::Quarter() * 8;
  fetcher.Start(share, row, rows);
  EntryTarget targets[2] = {TargetOf(params, row, rows), TargetOf(params, row + 8, rows)};
  if (threadIdx.x < 32) shared_operands.Fill(params.weight, params.rope.frequencies);
  __syncthreads();
  const LaneOperands operands(shared_operands);
  const auto quarter = static_cast<uint32_t>(Held(IndexRows::Quarter()));
  std::byte* const scales = pool.data + pool.entries_per_page * 64;
  while (row - IndexRows::Row() < rows) {
    row += stride;
    share = Held(share + int64_t{stride} * IndexRows::kChannels);
    IndexRows tile;
    WaitCopies<0>();
    __syncwarp();
    fragments.Load(tile);
    NormalizeRows(tile, fragments, operands, params.eps);
    __syncwarp();  // nobody reads the buffer any more
    fetcher.Start(share, row, rows);
    RotateRows(tile, operands,
               {PositionOf(targets[0], params.rope), PositionOf(targets[1], params.rope)});
    Fp4Group groups[2];
    HadamardRows(tile, operands, groups);
    GroupPlace places[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const auto [sequence, entry] = targets[i];
      const bool is_somewhere = targets[i].is_somewhere();
      const int page = divider.PageOf(entry);
      const uint64_t first =
          uint64_t{static_cast<uint32_t>(sequence)} * static_cast<uint32_t>(params.max_pages);
      const uint32_t number = is_somewhere ? params.page_table[first + page] : 0;
      const uint64_t offset = uint64_t{number} * static_cast<uint32_t>(pool.page_bytes);
      const uint32_t group =
          4 * static_cast<uint32_t>(entry - page * pool.entries_per_page) + quarter;
      places[i] = {.is_somewhere = is_somewhere,
                   .codes = pool.data + offset + uint64_t{group} * 16,
                   .scale = scales + offset + group};
      targets[i] = TargetOf(params, row + 8 * i, rows);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      StoreGroup<kNumerics == Numerics::kReference>(groups[i], places[i]);
    }
  }
}

}  // namespace

void StoreFp4Keys(const StoreEntriesParams& params, CUstream_st* stream) {
  const auto kernel = params.numerics == Numerics::kReference
                          ? StoreFp4KeysKernel<Numerics::kReference>
                          : StoreFp4KeysKernel<Numerics::kExact>;
  const int64_t all = (params.rows + kBlockRows - 1) / kBlockRows;
  const int64_t places = int64_t{kResident} * CurrentDevice().multiprocessors;
  const int64_t blocks = std::min(all, kRounds * places);
  kernel<<<static_cast<unsigned>(blocks), 32 * kWarps, 0, stream>>>(params);
  CheckLaunch("StoreFp4Keys");
}

}  // namespace baton::kernels::cuda
