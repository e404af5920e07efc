#include "tests/bench/cuda/kernel_trace.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string_view>

#include <cupti.h>
#include <cxxabi.h>

#include "common/base/check.h"

namespace baton::kernels::cuda {
namespace {

constexpr size_t kBufferBytes = size_t{8} << 20;
constexpr size_t kBufferAlignment = 8;

struct RawSpan {
  std::string name;
  uint64_t begin = 0;
  uint64_t end = 0;
};
// CUPTI's callbacks take no argument of ours.
std::vector<RawSpan>& Collected() {
  static std::vector<RawSpan> spans;
  return spans;
}

void CheckCupti(CUptiResult result, const char* call) {
  const char* text = "";
  if (result != CUPTI_SUCCESS) cuptiGetResultString(result, &text);
  BATON_CHECK(result == CUPTI_SUCCESS) << call << ": " << text;
}

void RequestBuffer(uint8_t** buffer, size_t* size, size_t* max_records) {
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(kBufferAlignment, kBufferBytes));
  *size = kBufferBytes;
  *max_records = 0;  // as many as fit
}

// "void baton::kernels::cuda::(anonymous namespace)::Plan<8>(Params)" -> "Plan".
std::string ShortName(const char* mangled) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> demangled(
      abi::__cxa_demangle(mangled, nullptr, nullptr, &status), &std::free);
  std::string_view name = status == 0 ? demangled.get() : mangled;
  constexpr std::string_view kAnonymous = "(anonymous namespace)::";
  if (const size_t at = name.rfind(kAnonymous, name.find('<')); at != name.npos) {
    name.remove_prefix(at + kAnonymous.size());
  }
  name = name.substr(0, name.find_first_of("<("));
  return std::string(name.substr(name.find_last_of(": ") + 1));
}

void CompleteBuffer(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t used) {
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, used, &record) == CUPTI_SUCCESS) {
    if (record->kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) continue;
    const auto* kernel = reinterpret_cast<const CUpti_ActivityKernel10*>(record);
    Collected().push_back({ShortName(kernel->name), kernel->start, kernel->end});
  }
  std::free(buffer);
}

}  // namespace

std::vector<KernelSpan> TraceKernels(const std::function<void()>& work) {
  Collected().clear();
  CheckCupti(cuptiActivityRegisterCallbacks(RequestBuffer, CompleteBuffer),
             "cuptiActivityRegisterCallbacks");
  CheckCupti(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), "cuptiActivityEnable");
  work();
  CheckCupti(cuptiActivityFlushAll(1), "cuptiActivityFlushAll");
  CheckCupti(cuptiActivityDisable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), "cuptiActivityDisable");
  std::vector<RawSpan>& raw = Collected();
  std::sort(raw.begin(), raw.end(),
            [](const RawSpan& a, const RawSpan& b) { return a.begin < b.begin; });
  std::vector<KernelSpan> spans;
  for (const RawSpan& span : raw) {
    constexpr double kNanoseconds = 1e-3;
    spans.push_back({span.name, kNanoseconds * static_cast<double>(span.begin - raw[0].begin),
                     kNanoseconds * static_cast<double>(span.end - raw[0].begin)});
  }
  return spans;
}

}  // namespace baton::kernels::cuda
