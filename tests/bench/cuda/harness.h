#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "kernels/runtime/buffer.h"

struct CUstream_st;

// Times CUDA ops against ceilings that are measured in the same run. A bench file registers groups;
// `kernels_bench [substring]...` runs the groups whose name contains one of the substrings.

namespace baton::kernels::cuda {

// One line of the table. Bytes and flops are those the op must move and do, each input read and
// each output written once.
struct BenchCase {
  std::string name;
  double bytes = 0;
  double flops = 0;
  // Enqueues one execution on buffer set `set`. Cases allocate as many sets as Sets() says, so that
  // no execution finds its inputs in the L2 cache.
  std::function<void(int set, CUstream_st* stream)> launch = {};
  int sets = 1;
};

// How many buffer sets of `bytes` it takes to exceed four times the L2 cache; at least 1.
int Sets(double bytes);

// A copy's bytes count twice, read and written; the product is 8192^3 in BF16 on random data.
enum class Ceiling { kCopy, kRead, kBf16Gemm };

class Bench {
 public:
  // Median device time in microseconds of at least 20 executions. Short cases are timed as a
  // captured graph of many, so that launch gaps count as they do in a captured step.
  static double Microseconds(const BenchCase& bench_case);
  // Measures and prints one line with the share of that ceiling; each ceiling is measured when it
  // is first asked for.
  void Run(const BenchCase& bench_case, Ceiling ceiling = Ceiling::kCopy);

 private:
  double PerSecond(Ceiling ceiling);

  std::map<Ceiling, double> measured_;  // bytes or flops a second
};

// Device memory filled with random BF16 values of deviation 1 (any bit pattern read as BF16 is
// finite); the process ends where memory is missing.
DeviceBuffer RandomBuffer(int64_t bytes, uint32_t seed);
DeviceBuffer Zeros(int64_t bytes);
DeviceBuffer OnDevice(const void* data, int64_t bytes);
template <typename T>
DeviceBuffer OnDevice(const std::vector<T>& values) {
  return OnDevice(values.data(), static_cast<int64_t>(values.size() * sizeof(T)));
}

// At namespace scope in a bench file: const BenchGroup kGroup("name", [](Bench& bench) { ... });
struct BenchGroup {
  BenchGroup(std::string name, std::function<void(Bench&)> body);
};

int RunBenches(int argc, char** argv);

}  // namespace baton::kernels::cuda
