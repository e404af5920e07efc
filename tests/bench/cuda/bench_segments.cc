#include <algorithm>
#include <numeric>
#include <random>

#include "kernels/cuda/segments.h"
#include "tests/bench/cuda/harness.h"

namespace baton::kernels::cuda {
namespace {

// `count` segments of `bytes` each, shuffled over memory, to and from staging.
void Run(Bench& bench, const char* what, int count, int64_t bytes) {
  std::vector<int64_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(1));
  const double total = static_cast<double>(count) * static_cast<double>(bytes);
  const int sets = Sets(2 * total);
  std::vector<DeviceBuffer> memory, staging, lists;
  for (int set = 0; set < sets; ++set) {
    memory.push_back(RandomBuffer(count * bytes, set));
    staging.push_back(RandomBuffer(count * bytes, set + 100));
    std::vector<Segment> segments;
    for (int64_t i = 0; i < count; ++i) {
      segments.push_back(
          {.data = memory[set].data() + order[i] * bytes, .offset = i * bytes, .bytes = bytes});
    }
    lists.push_back(OnDevice(segments));
  }
  const DeviceBuffer digest = Zeros(8);
  const auto list = [&](int set) {
    return SegmentList{lists[set].As<Segment>(), count, count * bytes};
  };
  const std::string name =
      std::string(what) + ", " + std::to_string(count) + " x " + std::to_string(bytes) + " B";
  bench.Run({.name = "gather " + name,
             .bytes = 2 * total,
             .launch =
                 [&](int set, CUstream_st* stream) {
                   GatherSegments(list(set), staging[set].data(), digest.As<uint64_t>(), stream);
                 },
             .sets = sets});
  bench.Run({.name = "scatter " + name,
             .bytes = 2 * total,
             .launch =
                 [&](int set, CUstream_st* stream) {
                   ScatterSegments(list(set), staging[set].data(), digest.As<uint64_t>(), stream);
                 },
             .sets = sets});
}

const BenchGroup kSegments("segments", [](Bench& bench) {
  Run(bench, "CSA pages", 16'384, 65'536);
  Run(bench, "CSA pages", 512, 65'536);
  Run(bench, "CSA pages", 256, 65'536);
  Run(bench, "index pages", 1'024, 16'384);
  Run(bench, "window rows", 16'384, 1'024);
  Run(bench, "packed HCA pages", 8'192, 1'728);
});

}  // namespace
}  // namespace baton::kernels::cuda
