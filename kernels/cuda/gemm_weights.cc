#include "kernels/cuda/gemm_weights.h"

#include <utility>
#include <vector>

#include "common/base/check.h"
#include "kernels/cuda/gemm_lt.h"
#include "kernels/numeric.h"
#include "kernels/runtime/stream.h"

namespace baton::kernels::cuda {

namespace {

std::optional<DeviceBuffer> Upload(const void* data, int64_t bytes) {
  auto buffer = DeviceBuffer::Allocate(bytes);
  if (!buffer) return std::nullopt;
  const Stream stream;
  CopyAsync(buffer->data(), data, bytes, stream.get());
  stream.Synchronize();
  return buffer;
}

}  // namespace

std::optional<DeviceWeights> UploadBf16(MatrixView<const BFloat16> w) {
  BATON_CHECK(w.stride == w.cols) << "rows " << w.stride << " apart";
  auto values = Upload(w.data, w.rows * w.cols * static_cast<int64_t>(sizeof(BFloat16)));
  if (!values) return std::nullopt;
  return DeviceWeights{.values = std::move(*values), .scales = {}};
}

std::optional<DeviceWeights> UploadFp8(MatrixView<const uint8_t> codes,
                                       MatrixView<const uint8_t> scales) {
  BATON_CHECK(codes.stride == codes.cols && scales.rows == (codes.rows + 127) / 128 &&
              scales.cols * 128 == codes.cols)
      << "codes [" << codes.rows << ", " << codes.cols << "], scales [" << scales.rows << ", "
      << scales.cols << "]";
  const int64_t columns = LtMatmul::ScaleColumns(codes.cols);
  std::vector<float> wide(scales.rows * columns, 0.0f);
  for (int64_t row = 0; row < scales.rows; ++row) {
    for (int64_t col = 0; col < scales.cols; ++col) {
      wide[row * columns + col] = DecodeE8m0(scales.Row(row)[col]);
    }
  }
  auto values = Upload(codes.data, codes.rows * codes.cols);
  auto device_scales = Upload(wide.data(), static_cast<int64_t>(wide.size() * sizeof(float)));
  if (!values || !device_scales) return std::nullopt;
  return DeviceWeights{.values = std::move(*values), .scales = std::move(*device_scales)};
}

}  // namespace baton::kernels::cuda
