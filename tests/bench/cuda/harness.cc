#include "tests/bench/cuda/harness.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string_view>
#include <utility>

#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include "common/base/check.h"
#include "kernels/runtime/device.h"
#include "kernels/runtime/error.h"
#include "kernels/runtime/event.h"
#include "kernels/runtime/stream.h"
#include "tests/bench/cuda/ceilings.h"

namespace baton::kernels::cuda {

namespace {

constexpr int kRuns = 21;
constexpr double kShortMicroseconds = 200;
constexpr int64_t kCeilingBytes = int64_t{4} << 30;

struct Group {
  std::string name;
  std::function<void(Bench&)> body;
};

std::vector<Group>& Groups() {
  static std::vector<Group> groups;
  return groups;
}

DeviceBuffer Allocated(int64_t bytes) {
  auto buffer = DeviceBuffer::Allocate(bytes);
  BATON_CHECK(buffer.has_value()) << "no device memory for " << bytes << " bytes";
  return std::move(*buffer);
}

double MedianMicroseconds(const std::function<void(int run)>& launch, Stream& stream) {
  Event begin(Event::Timing::kOn);
  Event end(Event::Timing::kOn);
  std::vector<double> times;
  for (int run = 0; run < kRuns; ++run) {
    begin.Record(stream.get());
    launch(run);
    end.Record(stream.get());
    end.Synchronize();
    times.push_back(1e3 * end.MillisecondsSince(begin));
  }
  std::nth_element(times.begin(), times.begin() + kRuns / 2, times.end());
  return times[kRuns / 2];
}

// A graph of `count` executions over consecutive buffer sets.
cudaGraphExec_t Captured(const BenchCase& bench_case, int count, Stream& stream) {
  cudaGraph_t graph = nullptr;
  CheckCuda(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal), "capture");
  for (int i = 0; i < count; ++i) bench_case.launch(i % bench_case.sets, stream.get());
  CheckCuda(cudaStreamEndCapture(stream.get(), &graph), "end of capture");
  cudaGraphExec_t executable = nullptr;
  CheckCuda(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
  CheckCuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
  return executable;
}

const char* NameOf(Ceiling ceiling) {
  switch (ceiling) {
    case Ceiling::kCopy:
      return "copied bytes";
    case Ceiling::kRead:
      return "read bytes";
    case Ceiling::kBf16Gemm:
      return "BF16 GEMM";
  }
  return "";
}

double MeasureMemory(Ceiling ceiling) {
  const bool is_copy = ceiling == Ceiling::kCopy;
  const DeviceBuffer source = RandomBuffer(kCeilingBytes, 1);
  const DeviceBuffer target = Zeros(kCeilingBytes);
  BenchCase measured{.name = NameOf(ceiling)};
  measured.launch = [&](int, CUstream_st* stream) {
    if (is_copy) return CopyBytes(source.data(), target.data(), kCeilingBytes, stream);
    ReadBytes(source.data(), kCeilingBytes, target.data(), stream);
  };
  return (is_copy ? 2e6 : 1e6) * kCeilingBytes / Bench::Microseconds(measured);
}

double MeasureGemm() {
  constexpr int kSize = 8192;
  const DeviceBuffer a = RandomBuffer(int64_t{2} * kSize * kSize, 2);
  const DeviceBuffer b = RandomBuffer(int64_t{2} * kSize * kSize, 3);
  const DeviceBuffer c = Zeros(int64_t{2} * kSize * kSize);
  cublasHandle_t handle = nullptr;
  BATON_CHECK(cublasCreate(&handle) == CUBLAS_STATUS_SUCCESS) << "cublasCreate";
  const float one = 1;
  const float zero = 0;
  BenchCase measured{.name = NameOf(Ceiling::kBf16Gemm)};
  measured.launch = [&](int, CUstream_st* stream) {
    cublasSetStream(handle, stream);
    const cublasStatus_t status =
        cublasGemmEx(handle, CUBLAS_OP_T, CUBLAS_OP_N, kSize, kSize, kSize, &one, a.data(),
                     CUDA_R_16BF, kSize, b.data(), CUDA_R_16BF, kSize, &zero, c.data(), CUDA_R_16BF,
                     kSize, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    BATON_CHECK(status == CUBLAS_STATUS_SUCCESS) << "cublasGemmEx " << status;
  };
  const double seconds = 1e-6 * Bench::Microseconds(measured);
  cublasDestroy(handle);
  return 2.0 * kSize * kSize * kSize / seconds;
}

}  // namespace

int Sets(double bytes) {
  const double wanted = 4.0 * static_cast<double>(CurrentDevice().l2_bytes);
  return std::clamp(static_cast<int>(std::ceil(wanted / std::max(bytes, 1.0))), 1, 64);
}

double Bench::Microseconds(const BenchCase& bench_case) {
  Stream stream;
  for (int set = 0; set < std::min(bench_case.sets, 3); ++set) {
    bench_case.launch(set, stream.get());
  }
  stream.Synchronize();
  const double direct = MedianMicroseconds(
      [&](int run) { bench_case.launch(run % bench_case.sets, stream.get()); }, stream);
  if (direct > kShortMicroseconds) return direct;
  const int count = std::max(20, bench_case.sets);
  cudaGraphExec_t graph = Captured(bench_case, count, stream);
  CheckCuda(cudaGraphLaunch(graph, stream.get()), "cudaGraphLaunch");
  const double together = MedianMicroseconds(
      [&](int) { CheckCuda(cudaGraphLaunch(graph, stream.get()), "cudaGraphLaunch"); }, stream);
  CheckCuda(cudaGraphExecDestroy(graph), "cudaGraphExecDestroy");
  return together / count;
}

double Bench::PerSecond(Ceiling ceiling) {
  const auto known = measured_.find(ceiling);
  if (known != measured_.end()) return known->second;
  const double rate = ceiling == Ceiling::kBf16Gemm ? MeasureGemm() : MeasureMemory(ceiling);
  std::printf("ceiling: %s %.4g /s\n", NameOf(ceiling), rate);
  return measured_[ceiling] = rate;
}

void Bench::Run(const BenchCase& bench_case, Ceiling ceiling) {
  const double peak = PerSecond(ceiling);
  const double seconds = 1e-6 * Microseconds(bench_case);
  const double bandwidth = bench_case.bytes / seconds;
  const double rate = bench_case.flops / seconds;
  const double share = (ceiling == Ceiling::kBf16Gemm ? rate : bandwidth) / peak;
  std::printf("%-56s %9.2f us %7.0f GB/s %7.1f TFLOP/s %6.1f %% of %s\n", bench_case.name.c_str(),
              1e6 * seconds, 1e-9 * bandwidth, 1e-12 * rate, 100 * share, NameOf(ceiling));
  std::fflush(stdout);
}

DeviceBuffer RandomBuffer(int64_t bytes, uint32_t seed) {
  DeviceBuffer buffer = Allocated(bytes);
  FillRandom(buffer.data(), bytes, seed, nullptr);
  CheckCuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  return buffer;
}

DeviceBuffer Zeros(int64_t bytes) {
  DeviceBuffer buffer = Allocated(bytes);
  FillAsync(buffer.data(), 0, bytes, nullptr);
  CheckCuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  return buffer;
}

DeviceBuffer OnDevice(const void* data, int64_t bytes) {
  DeviceBuffer buffer = Allocated(bytes);
  CopyAsync(buffer.data(), data, bytes, nullptr);
  CheckCuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  return buffer;
}

BenchGroup::BenchGroup(std::string name, std::function<void(Bench&)> body) {
  Groups().push_back({std::move(name), std::move(body)});
}

int RunBenches(int argc, char** argv) {
  if (DeviceCount() == 0) {
    std::fprintf(stderr, "no GPU\n");
    return 1;
  }
  const DeviceInfo& device = CurrentDevice();
  std::printf("%s, %d multiprocessors, %.0f MB of L2\n", device.name.c_str(),
              device.multiprocessors, 1e-6 * static_cast<double>(device.l2_bytes));
  Bench bench;
  for (const Group& group : Groups()) {
    const auto wanted = [&](const char* part) {
      return group.name.find(part) != std::string::npos;
    };
    if (argc < 2 || std::any_of(argv + 1, argv + argc, wanted)) group.body(bench);
  }
  return 0;
}

}  // namespace baton::kernels::cuda
