#include "kernels/cpu/isa/isa.h"

#include <array>

namespace baton::kernels {

namespace portable {
extern const IsaKernels kTable;
}
#if defined(__x86_64__)
namespace avx2 {
extern const IsaKernels kTable;
}
namespace avx512 {
extern const IsaKernels kTable;
}
#endif

namespace {

struct Runnable {
  std::array<const IsaKernels*, 3> tables{&portable::kTable};
  size_t count = 1;

  Runnable() {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
      tables[count++] = &avx2::kTable;
    }
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")) {
      tables[count++] = &avx512::kTable;
    }
#endif
  }
};

const Runnable& Tables() {
  static const Runnable runnable;
  return runnable;
}

}  // namespace

const IsaKernels& Isa() { return *Tables().tables[Tables().count - 1]; }

std::span<const IsaKernels* const> RunnableIsas() {
  return std::span(Tables().tables).first(Tables().count);
}

}  // namespace baton::kernels
