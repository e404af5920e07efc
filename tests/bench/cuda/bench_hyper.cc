#include "kernels/cuda/hyper_connection.h"
#include "tests/bench/cuda/harness.h"

namespace baton::kernels::cuda {
namespace {

struct Streams {
  Streams(int64_t rows, int64_t d, int sets) : scratch(Zeros(HcScratchBytes(rows))) {
    for (int set = 0; set < sets; ++set) {
      streams.push_back(RandomBuffer(rows * d * 8, set));
      x.push_back(RandomBuffer(rows * d * 2, set + 100));
    }
    post = RandomBuffer(rows * 16, 5);
    comb = RandomBuffer(rows * 64, 6);
    scale = RandomBuffer(16, 7);
    base = RandomBuffer(96, 8);
    const DeviceBuffer source = RandomBuffer(kMixes * d * 16, 9);
    fn = Zeros(HcFnBytes(kMixes, 4 * d));
    PackHcFn({source.As<float>(), kMixes, 4 * d}, fn.data(), nullptr);
  }
  std::vector<DeviceBuffer> streams, x;
  DeviceBuffer scratch, post, comb, scale, base, fn;
};

void Run(Bench& bench, int64_t rows, int64_t d) {
  const std::string shape = " " + std::to_string(rows) + " x 4 x " + std::to_string(d);
  const int sets = Sets(rows * 10.0 * d);
  const Streams s(rows, d, sets);
  bench.Run({.name = "hc pre" + shape,
             .bytes = rows * 10.0 * d + kMixes * 16.0 * d,
             .flops = 2.0 * rows * kMixes * 4 * d,
             .launch =
                 [&](int set, CUstream_st* stream) {
                   HcPre({.streams = {s.streams[set].As<BFloat16>(), rows, 4 * d},
                          .fn = s.fn.data(),
                          .scale = s.scale.As<float>(),
                          .base = s.base.As<float>(),
                          .x = {s.x[set].As<BFloat16>(), rows, d},
                          .post = s.post.As<float>(),
                          .comb = s.comb.As<float>(),
                          .scratch = s.scratch.data()},
                         stream);
                 },
             .sets = sets});
  bench.Run({.name = "hc head" + shape,
             .bytes = rows * 10.0 * d + kStreams * 16.0 * d,
             .flops = 2.0 * rows * kStreams * 4 * d,
             .launch =
                 [&](int set, CUstream_st* stream) {
                   HcHead({.streams = {s.streams[set].As<BFloat16>(), rows, 4 * d},
                           .fn = s.fn.data(),
                           .scale = s.scale.As<float>(),
                           .base = s.base.As<float>(),
                           .x = {s.x[set].As<BFloat16>(), rows, d},
                           .scratch = s.scratch.data()},
                          stream);
                 },
             .sets = sets});
  bench.Run({.name = "hc post" + shape,
             .bytes = rows * 18.0 * d,
             .launch =
                 [&](int set, CUstream_st* stream) {
                   HcPost({.output = {s.x[set].As<BFloat16>(), rows, d},
                           .post = s.post.As<float>(),
                           .comb = s.comb.As<float>(),
                           .streams = {s.streams[set].As<BFloat16>(), rows, 4 * d}},
                          stream);
                 },
             .sets = sets});
}

const BenchGroup kHyper("hyper", [](Bench& bench) {
  Run(bench, 16384, 4096);
  Run(bench, 8192, 4096);
  Run(bench, 8192, 7168);
  Run(bench, 64, 4096);
  Run(bench, 64, 7168);
  Run(bench, 64, 256);
});

}  // namespace
}  // namespace baton::kernels::cuda
