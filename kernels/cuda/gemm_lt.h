#pragma once

#include <cstdint>
#include <vector>

struct CUstream_st;

namespace baton::kernels::cuda {

// Products through cuBLASLt: y = x w^T with w [n, k] and x [m, k], for m rows that change from call
// to call. Algorithms are chosen when the object is made, one for each power of two of rows from 64
// up, of those of one family that do not split k, which need no workspace to speak of: an output is
// one sum over ascending k, and a row has the same bits whatever the number of rows. cuBLASLt does
// not promise that; its wgmma kernels do so, and the tests of Linear hold them to it.
class LtMatmul {
 public:
  enum class Input : uint8_t { kBf16, kFp8Blocks };
  enum class Output : uint8_t { kBf16, kF32 };
  struct Shape {
    Input input = Input::kBf16;
    Output output = Output::kBf16;
    int64_t n = 0;   // a multiple of 16
    int64_t k = 0;   // a multiple of 16, of 128 for kFp8Blocks
    int groups = 1;  // independent products, one after another in all matrices
    int64_t max_rows = 0;
  };
  explicit LtMatmul(const Shape& shape);

  // Everything in device memory. Strides in elements.
  struct Call {
    int64_t rows = 0;  // RoundUpRows of the rows wanted: x and y must reach so far
    const void* w = nullptr;
    const float* w_scales = nullptr;  // kFp8Blocks: [ceil(n / 128), ScaleColumns(k)]
    const void* x = nullptr;
    int64_t x_stride = 0;
    int64_t x_group = 0;              // between groups
    const float* x_scales = nullptr;  // kFp8Blocks: [k / 128, rows]
    void* y = nullptr;
    int64_t y_stride = 0;
    int64_t y_group = 0;
    void* workspace = nullptr;  // kWorkspaceBytes, not shared with work that may run meanwhile
  };
  void Run(const Call& call, CUstream_st* stream) const;

  static constexpr int64_t kWorkspaceBytes = 4096;
  static int64_t RoundUpRows(int64_t rows) { return (rows + 15) / 16 * 16; }
  static int64_t ScaleColumns(int64_t k) { return (k / 128 + 3) / 4 * 4; }

 private:
  // cublasLtMatmulAlgo_t, which is plain data, kept out of the header.
  struct Algorithm {
    uint64_t data[8] = {};
  };
  Shape shape_;
  std::vector<Algorithm> algorithms_;  // [i] for up to 64 * 2^i rows
};

}  // namespace baton::kernels::cuda
