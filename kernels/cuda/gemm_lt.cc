#include "kernels/cuda/gemm_lt.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <source_location>

#include <cublasLt.h>

#include "common/base/check.h"

namespace baton::kernels::cuda {

namespace {

void CheckLt(cublasStatus_t status, const char* call,
             std::source_location where = std::source_location::current()) {
  BATON_CHECK(status == CUBLAS_STATUS_SUCCESS)
      << call << ": " << cublasLtGetStatusString(status) << " at " << where.file_name() << ":"
      << where.line();
}

// One for the process: it is thread-safe and slow to make.
cublasLtHandle_t Handle() {
  static const cublasLtHandle_t handle = [] {
    cublasLtHandle_t created = nullptr;
    CheckLt(cublasLtCreate(&created), "cublasLtCreate");
    return created;
  }();
  return handle;
}

bool IsFp8(const LtMatmul::Shape& shape) { return shape.input == LtMatmul::Input::kFp8Blocks; }

// cuBLASLt thinks in columns: y^T [n, m] = (w^T)^T x^T, so w is its A and x its B.
struct Problem {
  cublasLtMatmulDescOpaque_t operation;
  cublasLtMatrixLayoutOpaque_t w, x, y;

  Problem(const LtMatmul::Shape& shape, const LtMatmul::Call& call) {
    CheckLt(cublasLtMatmulDescInit(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F),
            "cublasLtMatmulDescInit");
    Set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
    const cudaDataType_t input = IsFp8(shape) ? CUDA_R_8F_E4M3 : CUDA_R_16BF;
    if (IsFp8(shape)) {
      Set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F);
      Set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F);
      Set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, call.w_scales);
      Set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, call.x_scales);
    }
    Layout(w, input, shape.k, shape.n, shape.k, shape.groups, shape.n * shape.k);
    Layout(x, input, shape.k, call.rows, call.x_stride, shape.groups, call.x_group);
    Layout(y, shape.output == LtMatmul::Output::kF32 ? CUDA_R_32F : CUDA_R_16BF, shape.n, call.rows,
           call.y_stride, shape.groups, call.y_group);
  }

 private:
  template <typename T>
  void Set(cublasLtMatmulDescAttributes_t attribute, T value) {
    CheckLt(cublasLtMatmulDescSetAttribute(&operation, attribute, &value, sizeof(value)),
            "cublasLtMatmulDescSetAttribute");
  }
  static void Layout(cublasLtMatrixLayoutOpaque_t& layout, cudaDataType_t type, int64_t rows,
                     int64_t columns, int64_t stride, int32_t groups, int64_t group_stride) {
    CheckLt(cublasLtMatrixLayoutInit(&layout, type, rows, columns, stride),
            "cublasLtMatrixLayoutInit");
    if (groups == 1) return;
    CheckLt(cublasLtMatrixLayoutSetAttribute(&layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &groups,
                                             sizeof(groups)),
            "cublasLtMatrixLayoutSetAttribute");
    CheckLt(cublasLtMatrixLayoutSetAttribute(&layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                             &group_stride, sizeof(group_stride)),
            "cublasLtMatrixLayoutSetAttribute");
  }
};

constexpr int64_t kFirstBucket = 64;  // rows
// Looked through, the largest first, whatever max_rows is: so the family that all follow is the one
// for 32,768 rows, more than any layer here prepares for, and two objects that differ in max_rows
// alone have the same. Large products go to the wgmma kernels; few rows by themselves might go to
// an older family, whose bits are others.
constexpr size_t kLeastBuckets = 10;

// The smallest i with rows <= kFirstBucket * 2^i.
size_t Bucket(int64_t rows) {
  size_t bucket = 0;
  while ((kFirstBucket << bucket) < rows) ++bucket;
  return bucket;
}

using Chosen = std::optional<cublasLtMatmulAlgo_t>;

// Algorithms of one id are one kernel in several tiles, stages and clusters. Where k is not split
// these say who computes an output, not in which order it is added up: one chain of the tensor
// cores' steps over ascending k. Measured with cuBLASLt 13.1 in all layers, for 32 to 4,096 rows;
// another release has to pass the tests of Linear first.
int FamilyOf(const cublasLtMatmulAlgo_t& algorithm) {
  int family = 0;
  size_t written = 0;
  CheckLt(cublasLtMatmulAlgoConfigGetAttribute(&algorithm, CUBLASLT_ALGO_CONFIG_ID, &family,
                                               sizeof(family), &written),
          "cublasLtMatmulAlgoConfigGetAttribute");
  return family;
}

// The fastest, as cuBLASLt has it, of those that do not split k and are of the same family as
// `for_more`, chosen for more rows, which serves where there is none: nothing in it depends on the
// number of rows but how they are tiled, and were it refused after all, cublasLtMatmul, which
// checks what it is given, would say so and end the process.
Chosen Choose(const LtMatmul::Shape& shape, int64_t rows, const Chosen& for_more) {
  // The scales' addresses are looked at, but only for whether there are any.
  alignas(16) static const float somewhere[4] = {};
  LtMatmul::Call call{.rows = rows,
                      .w_scales = somewhere,
                      .x_stride = shape.k * shape.groups,
                      .x_group = shape.k,
                      .x_scales = somewhere,
                      .y_stride = shape.n * shape.groups,
                      .y_group = shape.n};
  Problem problem(shape, call);
  cublasLtMatmulPreferenceOpaque_t preference;
  CheckLt(cublasLtMatmulPreferenceInit(&preference), "cublasLtMatmulPreferenceInit");
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    CheckLt(cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof(value)),
            "cublasLtMatmulPreferenceSetAttribute");
  };
  // What it would rank algorithms by; with less it ranks those that need none otherwise, too.
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{32} << 20);
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t{CUBLASLT_REDUCTION_SCHEME_NONE});
  constexpr int kCandidates = 16;
  cublasLtMatmulHeuristicResult_t results[kCandidates];
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      Handle(), &problem.operation, &problem.w, &problem.x, &problem.y, &problem.y, &preference,
      kCandidates, results, &found);
  if (status != CUBLAS_STATUS_SUCCESS) return for_more;
  for (int i = 0; i < found; ++i) {
    if (results[i].state != CUBLAS_STATUS_SUCCESS) continue;
    if (results[i].workspaceSize > size_t{LtMatmul::kWorkspaceBytes}) continue;
    if (!for_more || FamilyOf(results[i].algo) == FamilyOf(*for_more)) return results[i].algo;
  }
  return for_more;
}

}  // namespace

LtMatmul::LtMatmul(const Shape& shape) : shape_(shape) {
  static_assert(sizeof(Algorithm) == sizeof(cublasLtMatmulAlgo_t));
  BATON_CHECK(shape.n % (IsFp8(shape) ? 16 : 8) == 0 && shape.k % (IsFp8(shape) ? 128 : 16) == 0)
      << "n " << shape.n << ", k " << shape.k;
  algorithms_.resize(Bucket(shape.max_rows) + 1);
  Chosen algorithm;
  for (size_t i = std::max(algorithms_.size(), kLeastBuckets); i-- > 0;) {
    algorithm = Choose(shape, kFirstBucket << i, algorithm);
    if (i >= algorithms_.size()) continue;
    BATON_CHECK(algorithm.has_value())
        << "cuBLASLt has no " << (IsFp8(shape) ? "FP8 (1x128 by 128x128 scales)" : "BF16")
        << " product with whole sums for n " << shape.n << ", k " << shape.k << ", "
        << (kFirstBucket << i) << " rows";
    std::memcpy(algorithms_[i].data, &*algorithm, sizeof(*algorithm));
  }
}

void LtMatmul::Run(const Call& call, CUstream_st* stream) const {
  BATON_CHECK(call.rows % 16 == 0 && Bucket(call.rows) < algorithms_.size())
      << call.rows << " rows, prepared for " << shape_.max_rows;
  if (call.rows == 0) return;
  Problem problem(shape_, call);
  cublasLtMatmulAlgo_t algorithm;
  std::memcpy(&algorithm, algorithms_[Bucket(call.rows)].data, sizeof(algorithm));
  const float one = 1;
  const float zero = 0;
  CheckLt(cublasLtMatmul(Handle(), &problem.operation, &one, call.w, &problem.w, call.x, &problem.x,
                         &zero, call.y, &problem.y, call.y, &problem.y, &algorithm, call.workspace,
                         kWorkspaceBytes, stream),
          "cublasLtMatmul");
}

}  // namespace baton::kernels::cuda
