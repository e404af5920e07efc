#pragma once

#include <utility>
#include <vector>

#include "kernels/cuda/fp8_rows.h"
#include "kernels/dequantize.h"
#include "kernels/numeric.h"
#include "tests/kernels/cuda/support.h"

// FP8 activations and weights in both the device's form and the one that the CPU ops read.

namespace baton::kernels::cuda {

// [rows, cols] quantised in groups of 128 columns. Rows up to the next multiple of 16 hold NaN.
struct TestFp8Rows {
  TestFp8Rows(const std::vector<BFloat16>& x, int64_t rows, int64_t cols)
      : TestFp8Rows(Quantise(x, rows, cols), rows, cols) {}

  Fp8Rows view() const {
    return {.codes = codes.get(),
            .scales = scales.get(),
            .rows = rows,
            .cols = cols,
            .stride = cols,
            .scale_stride = Padded(rows)};
  }
  static int64_t Padded(int64_t rows) { return (rows + 15) / 16 * 16; }

  std::vector<BFloat16> values;  // as the CPU ops see them
  DeviceArray<uint8_t> codes;
  DeviceArray<float> scales;
  int64_t rows;
  int64_t cols;

 private:
  struct Host {
    std::vector<BFloat16> values;
    std::vector<uint8_t> codes;
    std::vector<float> scales;
  };
  static Host Quantise(const std::vector<BFloat16>& x, int64_t rows, int64_t cols) {
    Host host{.values = x,
              .codes = std::vector<uint8_t>(Padded(rows) * cols, 0x7f),
              .scales = std::vector<float>(Padded(rows) * cols / 128, NAN)};
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t first = 0; first < cols; first += 128) {
        const BFloat16* group = x.data() + row * cols + first;
        float largest = 0;
        for (int i = 0; i < 128; ++i) {
          largest = std::fmax(largest, std::fabs(static_cast<float>(group[i])));
        }
        const float scale = Fp8Scale(largest);
        host.scales[first / 128 * Padded(rows) + row] = scale;
        for (int i = 0; i < 128; ++i) {
          const uint8_t code = EncodeE4m3(static_cast<float>(group[i]) / scale);
          host.codes[row * cols + first + i] = code;
          host.values[row * cols + first + i] = BFloat16(DecodeE4m3(code) * scale);
        }
      }
    }
    return host;
  }
  TestFp8Rows(Host host, int64_t rows, int64_t cols)
      : values(std::move(host.values)),
        codes(host.codes),
        scales(host.scales),
        rows(rows),
        cols(cols) {}
};

// A weight [n, k] in e4m3 with a scale per 128 x 128 block, spread over eight powers of two.
struct TestFp8Weight {
  TestFp8Weight(int64_t n, int64_t k, uint32_t seed)
      : n(n), k(k), codes(n * k), scales((n + 127) / 128 * (k / 128)), values(n * k) {
    std::mt19937 engine(seed);
    for (uint8_t& code : codes) {
      code = static_cast<uint8_t>(engine());
      if ((code & 0x7f) == 0x7f) code ^= 1;  // no NaN
    }
    // Codes reach 448: scales keep values near 1.
    for (uint8_t& scale : scales) scale = static_cast<uint8_t>(112 + engine() % 8);
    DequantizeFp8Blocks(View(std::as_const(codes), n, k),
                        View(std::as_const(scales), (n + 127) / 128, k / 128), View(values, n, k));
  }

  int64_t n, k;
  std::vector<uint8_t> codes;
  std::vector<uint8_t> scales;
  std::vector<BFloat16> values;
};

}  // namespace baton::kernels::cuda
