#pragma once

#include <cstdint>
#include <optional>

#include "common/base/bf16.h"
#include "kernels/matrix.h"
#include "kernels/runtime/buffer.h"

namespace baton::kernels::cuda {

// A layer's weights in device memory, as the checkpoint has them but for the scales, which become
// FP32 in rows of LtMatmul::ScaleColumns(k).
struct DeviceWeights {
  DeviceBuffer values;
  DeviceBuffer scales;  // empty for BF16

  bool is_fp8() const { return scales.data() != nullptr; }
};

// From host memory; return when the copy is made. Null: no device memory left. Rows lie without
// gaps; scales are E8M0, [ceil(n / 128), k / 128].
std::optional<DeviceWeights> UploadBf16(MatrixView<const BFloat16> w);
std::optional<DeviceWeights> UploadFp8(MatrixView<const uint8_t> codes,
                                       MatrixView<const uint8_t> scales);

}  // namespace baton::kernels::cuda
