#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <string>

#include "kernels/cuda/dequantize.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/gemm_small.h"
#include "kernels/cuda/grouped_experts.h"
#include "kernels/cuda/grouped_output.h"
#include "kernels/cuda/moe.h"
#include "kernels/cuda/permute.h"
#include "kernels/cuda/router.h"
#include "kernels/runtime/stream.h"
#include "tests/bench/cuda/harness.h"

namespace baton::kernels::cuda {
namespace {

constexpr int64_t kMaxRows = 8192;

template <typename T>
MatrixView<T> Matrix(const DeviceBuffer& buffer, int64_t rows, int64_t cols) {
  return {buffer.As<T>(), rows, cols};
}

std::string Name(const std::string& op, int64_t rows, int64_t n, int64_t k) {
  return op + " " + std::to_string(rows) + " x [" + std::to_string(n) + ", " + std::to_string(k) +
         "]";
}

// Random e4m3 codes without NaN.
std::vector<uint8_t> RandomCodes(int64_t count, uint32_t seed) {
  std::mt19937 engine(seed);
  std::vector<uint8_t> codes(count);
  for (int64_t i = 0; i < count; i += 4) {
    const uint32_t four = static_cast<uint32_t>(engine()) & 0xf7f7f7f7u;
    std::memcpy(codes.data() + i, &four, 4);
  }
  return codes;
}

struct Fp8Input {
  Fp8Input(int64_t rows, int64_t k)
      : codes(OnDevice(RandomCodes(rows * k, 1))),
        scales(OnDevice(std::vector<float>(rows * k / 128, 0.25f))) {}
  Fp8Rows view(int64_t rows, int64_t k) const {
    return {codes.As<const uint8_t>(),  scales.As<const float>(), rows, k, k,
            LtMatmul::RoundUpRows(rows)};
  }
  DeviceBuffer codes, scales;
};

// A layer at decoding sizes against the bytes of its weights, at prefill sizes against BF16's rate.
void Layer(Bench& bench, bool fp8, int64_t n, int64_t k, const std::vector<int64_t>& row_counts) {
  const double weight_bytes = static_cast<double>(n) * k * (fp8 ? 1 : 2);
  const int sets = Sets(weight_bytes);
  std::vector<Linear> layers;
  for (int i = 0; i < sets; ++i) {
    if (fp8) {
      const auto codes = RandomCodes(n * k, i);
      const std::vector<uint8_t> scales((n + 127) / 128 * (k / 128), 120);
      layers.push_back(*Linear::FromFp8(
          {codes.data(), n, k}, {scales.data(), (n + 127) / 128, k / 128}, {.max_rows = kMaxRows}));
    } else {
      const DeviceBuffer random = RandomBuffer(n * k * 2, i);
      std::vector<BFloat16> host(n * k);
      CopyAsync(host.data(), random.data(), n * k * 2, nullptr);
      layers.push_back(*Linear::FromBf16({host.data(), n, k}, {.max_rows = kMaxRows}));
    }
  }
  const DeviceBuffer workspace = Zeros(LtMatmul::kWorkspaceBytes);
  const DeviceBuffer y = Zeros(kMaxRows * n * 2);
  const DeviceBuffer x = RandomBuffer(kMaxRows * k * 2, 7);
  const Fp8Input x8(kMaxRows, k);
  for (const int64_t rows : row_counts) {
    const BenchCase test{
        .name = Name(fp8 ? "fp8 layer" : "bf16 layer", rows, n, k),
        .bytes = weight_bytes + static_cast<double>(rows) * (k * (fp8 ? 1 : 2) + n * 2),
        .flops = 2.0 * rows * n * k,
        .launch =
            [&](int set, CUstream_st* stream) {
              const auto out = Matrix<BFloat16>(y, rows, n);
              if (fp8) {
                layers[set].Run(x8.view(rows, k), out, workspace.data(), stream);
              } else {
                layers[set].Run(Matrix<const BFloat16>(x, rows, k), out, workspace.data(), stream);
              }
            },
        .sets = sets};
    bench.Run(test, rows <= 64 ? Ceiling::kRead : Ceiling::kBf16Gemm);
  }
}

const BenchGroup kGemm("gemm", [](Bench& bench) {
  const std::vector<int64_t> rows = {1, 8, 16, 32, 64, 512, 4096, 8192};
  Layer(bench, /*fp8=*/true, 32768, 1024, rows);              // wq_b
  Layer(bench, /*fp8=*/true, 1024, 4096, rows);               // wq_a
  Layer(bench, /*fp8=*/true, 4096, 8192, rows);               // wo_b
  Layer(bench, /*fp8=*/true, 4096, 2048, rows);               // shared down
  Layer(bench, /*fp8=*/false, 2048, 4096, rows);              // compressor
  Layer(bench, /*fp8=*/false, 256, 4096, rows);               // router
  Layer(bench, /*fp8=*/false, 129280, 4096, {1, 8, 16, 64});  // head
});

const BenchGroup kGroupedOutput("grouped_output", [](Bench& bench) {
  constexpr int64_t kGroups = 8, kRank = 1024, kWidth = 4096;
  const double bytes = kGroups * kRank * kWidth;
  std::vector<GroupedOutput> layers;
  for (int i = 0; i < Sets(bytes); ++i) {
    const auto codes = RandomCodes(kGroups * kRank * kWidth, i);
    const std::vector<uint8_t> scales(kGroups * kRank / 128 * (kWidth / 128), 120);
    layers.push_back(*GroupedOutput::FromFp8({codes.data(), kGroups * kRank, kWidth},
                                             {scales.data(), kGroups * kRank / 128, kWidth / 128},
                                             kGroups, kMaxRows));
  }
  const DeviceBuffer o = RandomBuffer(kMaxRows * kGroups * kWidth * 2, 1);
  const DeviceBuffer z = Zeros(kMaxRows * kGroups * kRank * 2);
  const DeviceBuffer scratch = Zeros(layers[0].ScratchBytes());
  const DeviceBuffer workspace = Zeros(LtMatmul::kWorkspaceBytes);
  for (const int64_t rows : {1, 8, 16, 64, 512, 8192}) {
    bench.Run({.name = "grouped output, " + std::to_string(rows) + " rows",
               .bytes = bytes + static_cast<double>(rows) * kGroups * (kWidth + kRank) * 2,
               .flops = 2.0 * rows * kGroups * kRank * kWidth,
               .launch =
                   [&](int set, CUstream_st* stream) {
                     layers[set].Run(Matrix<const BFloat16>(o, rows, kGroups * kWidth),
                                     Matrix<BFloat16>(z, rows, kGroups * kRank), scratch.data(),
                                     workspace.data(), stream);
                   },
               .sets = static_cast<int>(layers.size())},
              rows <= 64 ? Ceiling::kRead : Ceiling::kBf16Gemm);
  }
});

// Flash: 256 experts of 4096 x 2048, six a row, chosen at random.
constexpr int kExperts = 256;
constexpr int64_t kD = 4096;
constexpr int64_t kF = 2048;
constexpr int kTopK = 6;

std::vector<int32_t> RandomIds(int64_t rows) {
  std::mt19937 engine(1);
  std::vector<int32_t> ids, order(kExperts);
  std::iota(order.begin(), order.end(), 0);
  for (int64_t row = 0; row < rows; ++row) {
    for (int i = 0; i < kTopK; ++i) std::swap(order[i], order[i + engine() % (kExperts - i)]);
    std::vector<int32_t> chosen(order.begin(), order.begin() + kTopK);
    std::sort(chosen.begin(), chosen.end());
    ids.insert(ids.end(), chosen.begin(), chosen.end());
  }
  return ids;
}

const BenchGroup kMoe("moe", [](Bench& bench) {
  const DeviceBuffer gate_up = Zeros(kExperts * GateUpBytes(kD, kF));
  const DeviceBuffer down = Zeros(kExperts * DownBytes(kD, kF));
  const DeviceBuffer row_scales = Zeros(kExperts * (2 * kF + kD) * 4);
  const ExpertBank bank{kExperts, kD, kF, gate_up.data(), down.data(), row_scales.As<float>()};
  const DeviceBuffer codes = RandomBuffer(kD * kF / 2, 1);
  const DeviceBuffer scales =
      OnDevice(std::vector<uint8_t>(static_cast<size_t>(kD * kF / 32), 121));
  const Fp4Tensor tensor{codes.As<uint8_t>(), scales.As<uint8_t>()};
  for (int i = 0; i < kExperts; ++i) PackExpert(tensor, tensor, tensor, i, bank, nullptr);

  constexpr int64_t kSlots = kMaxRows * kTopK;
  const DeviceBuffer x = RandomBuffer(kMaxRows * kD, 2);
  const DeviceBuffer x_scales =
      OnDevice(std::vector<float>(static_cast<size_t>(kMaxRows * kD / 128), 0.001f));
  const DeviceBuffer weights = OnDevice(std::vector<float>(kSlots, 0.25f));
  const DeviceBuffer begin = Zeros((kExperts + 1) * 4), row = Zeros(kSlots * 4);
  const DeviceBuffer slot = Zeros(kSlots * 4), weight = Zeros(kSlots * 4);
  const DeviceBuffer hidden = Zeros(kSlots * kF), hidden_scales = Zeros(kSlots * kF / 128 * 4);
  const DeviceBuffer y = Zeros(kSlots * kD * 2);
  const DeviceBuffer shared = RandomBuffer(kMaxRows * kD * 2, 3), out = Zeros(kMaxRows * kD * 2);
  for (const int64_t rows : {1, 8, 32, 64, 128, 512, 2048, 8192}) {
    const std::vector<int32_t> ids = RandomIds(rows);
    const DeviceBuffer device_ids = OnDevice(ids);
    std::vector<int32_t> used = ids;
    std::sort(used.begin(), used.end());
    used.erase(std::unique(used.begin(), used.end()), used.end());
    const auto active = static_cast<double>(used.size());
    const int64_t count = rows * kTopK;
    const MutableFp8Rows of_hidden{
        hidden.As<uint8_t>(), hidden_scales.As<float>(), count, kF, kF, count};
    const ExpertSlots slots{count, begin.As<int32_t>(), row.As<int32_t>(), weight.As<float>()};
    const auto assign = [&](int, CUstream_st* stream) {
      AssignSlots({.experts = Matrix<const int32_t>(device_ids, rows, kTopK),
                   .weights = weights.As<float>(),
                   .expert_count = kExperts,
                   .begin = begin.As<int32_t>(),
                   .row = row.As<int32_t>(),
                   .weight = weight.As<float>(),
                   .slot = slot.As<int32_t>()},
                  stream);
    };
    const std::string suffix = ", " + std::to_string(rows) + " rows";
    // From 8 rows on the experts in use exceed the L2 cache; one row's do too, if only just.
    const Ceiling ceiling = rows <= 512 ? Ceiling::kRead : Ceiling::kBf16Gemm;
    bench.Run({.name = "assign slots" + suffix, .bytes = count * 16.0, .launch = assign});
    bench.Run({.name = "experts gate_up" + suffix,
               .bytes = active * GateUpBytes(kD, kF) + count * (kD + kF) * 1.0,
               .flops = 4.0 * count * kD * kF,
               .launch =
                   [&](int, CUstream_st* stream) {
                     ExpertGateUp({.bank = bank,
                                   .slots = slots,
                                   .x = {x.As<uint8_t>(), x_scales.As<float>(), rows, kD, kD, rows},
                                   .hidden = of_hidden},
                                  stream);
                   }},
              ceiling);
    bench.Run({.name = "experts down" + suffix,
               .bytes = active * DownBytes(kD, kF) + count * (2.0 * kD + kF),
               .flops = 2.0 * count * kD * kF,
               .launch =
                   [&](int, CUstream_st* stream) {
                     ExpertDown({.bank = bank,
                                 .slots = slots,
                                 .hidden = ReadOnly(of_hidden),
                                 .y = Matrix<BFloat16>(y, count, kD)},
                                stream);
                   }},
              ceiling);
    bench.Run({.name = "combine" + suffix,
               .bytes = (count + 2.0 * rows) * kD * 2,
               .launch = [&](int, CUstream_st* stream) {
                 CombineExperts({.y = Matrix<const BFloat16>(y, count, kD),
                                 .slot = Matrix<const int32_t>(slot, rows, kTopK),
                                 .shared = Matrix<const BFloat16>(shared, rows, kD),
                                 .out = Matrix<BFloat16>(out, rows, kD)},
                                stream);
               }});
  }
});

const BenchGroup kRouter("router", [](Bench& bench) {
  const DeviceBuffer logits = RandomBuffer(kMaxRows * kExperts * 4, 1);
  const DeviceBuffer bias = Zeros(kExperts * 4);
  const DeviceBuffer ids = Zeros(kMaxRows * kTopK * 4), weights = Zeros(kMaxRows * kTopK * 4);
  const DeviceBuffer gate_up = RandomBuffer(kMaxRows * 2 * kF * 2, 2);
  const DeviceBuffer codes = Zeros(kMaxRows * kF), scales = Zeros(kMaxRows * kF / 128 * 4);
  for (const int64_t rows : {64, 8192}) {
    bench.Run({.name = "router, " + std::to_string(rows) + " rows",
               .bytes = rows * (kExperts * 4.0 + kTopK * 8),
               .launch = [&](int, CUstream_st* stream) {
                 Router({.logits = Matrix<const float>(logits, rows, kExperts),
                         .bias = bias.As<float>(),
                         .experts = Matrix<int32_t>(ids, rows, kTopK),
                         .weights = Matrix<float>(weights, rows, kTopK)},
                        stream);
               }});
    bench.Run({.name = "gate shared expert, " + std::to_string(rows) + " rows",
               .bytes = rows * kF * 5.0,
               .launch = [&](int, CUstream_st* stream) {
                 GateSharedExpert({.gate_up = Matrix<const BFloat16>(gate_up, rows, 2 * kF),
                                   .v = {codes.As<uint8_t>(), scales.As<float>(), rows, kF, kF,
                                         LtMatmul::RoundUpRows(rows)}},
                                  stream);
               }});
  }
});

}  // namespace
}  // namespace baton::kernels::cuda
