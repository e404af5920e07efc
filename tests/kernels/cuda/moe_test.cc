#include "kernels/moe.h"

#include <algorithm>
#include <memory>

#include "kernels/cuda/gemm.h"
#include "kernels/cuda/grouped_experts.h"
#include "kernels/cuda/moe.h"
#include "kernels/cuda/permute.h"
#include "tests/kernels/cuda/fp8_support.h"

namespace baton::kernels::cuda {
namespace {

// An FP4 weight as a checkpoint has it, scales over `spread` powers of two.
struct Fp4Weight {
  Fp4Weight(int64_t n, int64_t k, uint32_t seed, int spread)
      : n(n), k(k), codes(n * k / 2), scales(n * k / 32), values(n * k) {
    std::mt19937 engine(seed);
    for (uint8_t& code : codes) code = static_cast<uint8_t>(engine());
    for (uint8_t& scale : scales) scale = static_cast<uint8_t>(121 - engine() % spread);
    Widen();
  }
  void Widen() {
    DequantizeFp4Groups(View(std::as_const(codes), n, k / 2),
                        View(std::as_const(scales), n, k / 32), View(values, n, k));
  }

  int64_t n, k;
  std::vector<uint8_t> codes, scales;
  std::vector<BFloat16> values;
};

struct Expert {
  Expert(int64_t d, int64_t f, uint32_t seed, int spread)
      : w1(f, d, seed, spread), w2(d, f, seed + 1, spread), w3(f, d, seed + 2, spread) {}
  ExpertWeights Packed() const {
    std::vector<BFloat16> gate_up = w1.values;
    gate_up.insert(gate_up.end(), w3.values.begin(), w3.values.end());
    return {PackedMatrix::FromRows(View(std::as_const(gate_up), 2 * w1.n, w1.k)),
            PackedMatrix::FromRows(View(w2.values, w2.n, w2.k))};
  }
  Fp4Weight w1, w2, w3;
};

// A bank on the device, and the same experts for the CPU.
struct Experts {
  Experts(int count, int64_t d, int64_t f, int spread = 4)
      : gate_up(count * GateUpBytes(d, f)),
        down(count * DownBytes(d, f)),
        row_scales(count * (2 * f + d)) {
    for (int i = 0; i < count; ++i) host.emplace_back(d, f, 10 * i, spread);
    bank = {.experts = count,
            .d = d,
            .f = f,
            .gate_up = gate_up.get(),
            .down = down.get(),
            .row_scales = row_scales.get()};
    Pack();
  }
  void Pack() {
    for (int i = 0; i < bank.experts; ++i) {
      const Fp4Weight* weights[3] = {&host[i].w1, &host[i].w2, &host[i].w3};
      std::vector<std::unique_ptr<DeviceArray<uint8_t>>> raw;
      Fp4Tensor tensors[3];
      for (int j = 0; j < 3; ++j) {
        raw.push_back(std::make_unique<DeviceArray<uint8_t>>(weights[j]->codes));
        tensors[j].codes = raw.back()->get();
        raw.push_back(std::make_unique<DeviceArray<uint8_t>>(weights[j]->scales));
        tensors[j].scales = raw.back()->get();
      }
      PackExpert(tensors[0], tensors[1], tensors[2], i, bank, TestStream().get());
      TestStream().Synchronize();
    }
  }

  std::vector<Expert> host;
  DeviceArray<std::byte> gate_up, down;
  DeviceArray<float> row_scales;
  ExpertBank bank;
};

// Runs slots and both grouped products. `expected_slots` only chooses the tile's width.
struct Routed {
  Routed(const Experts& experts, const TestFp8Rows& x, const std::vector<int32_t>& ids,
         const std::vector<float>& weights, int k, float limit, int64_t expected_slots = 0,
         bool portable = false)
      : rows(x.rows),
        slots(std::max(rows * k, expected_slots)),
        device_ids(ids),
        device_weights(weights),
        begin(experts.bank.experts + 1),
        row(slots),
        slot(rows * k),
        weight(slots),
        hidden_codes(slots * experts.bank.f),
        hidden_scales(slots * experts.bank.f / 128),
        y(slots * experts.bank.d) {
    CUstream_st* stream = TestStream().get();
    const ExpertBank& bank = experts.bank;
    const MutableFp8Rows hidden{
        hidden_codes.get(), hidden_scales.get(), slots, bank.f, bank.f, slots};
    AssignSlots({.experts = {device_ids.get(), rows, k},
                 .weights = device_weights.get(),
                 .expert_count = bank.experts,
                 .begin = begin.get(),
                 .row = row.get(),
                 .weight = weight.get(),
                 .slot = slot.get()},
                stream);
    const ExpertSlots of{slots, begin.get(), row.get(), weight.get()};
    const auto gate_up = portable ? ExpertGateUpPortable : ExpertGateUp;
    const auto down = portable ? ExpertDownPortable : ExpertDown;
    gate_up({.bank = bank, .slots = of, .x = x.view(), .limit = limit, .hidden = hidden}, stream);
    down({.bank = bank, .slots = of, .hidden = ReadOnly(hidden), .y = {y.get(), slots, bank.d}},
         stream);
  }

  int64_t rows, slots;
  DeviceArray<int32_t> device_ids;
  DeviceArray<float> device_weights;
  DeviceArray<int32_t> begin, row, slot;
  DeviceArray<float> weight;
  DeviceArray<uint8_t> hidden_codes;
  DeviceArray<float> hidden_scales;
  DeviceArray<BFloat16> y;
};

// k different experts a row, ascending.
std::vector<int32_t> RandomIds(int64_t rows, int experts, int k, uint32_t seed) {
  std::mt19937 engine(seed);
  std::vector<int32_t> ids, order(experts);
  std::iota(order.begin(), order.end(), 0);
  for (int64_t row = 0; row < rows; ++row) {
    std::shuffle(order.begin(), order.end(), engine);
    std::sort(order.begin(), order.begin() + k);
    ids.insert(ids.end(), order.begin(), order.begin() + k);
  }
  return ids;
}

// With the fastest variant of the experts, and with the portable one.
class MoeTest : public CudaTest, public testing::WithParamInterface<bool> {
 protected:
  // The whole layer against the CPU's.
  void ExpectMatches(const Experts& experts, int64_t rows, const std::vector<int32_t>& ids, int k) {
    const auto [count, d, f, unused0, unused1, unused2] = experts.bank;
    const float limit = 4.0f;  // small, so that the clamps matter
    const TestFp8Rows x(RandomWithOutliers<BFloat16>(rows * d, 1), rows, d);
    std::vector<float> weights = RandomValues<float>(rows * k, 2);
    for (float& weight : weights) weight = std::fabs(weight) + 0.1f;
    const TestFp8Weight shared_gate_up(2 * f, d, 3), shared_down(d, f, 4);

    std::vector<ExpertWeights> packed;
    for (const Expert& expert : experts.host) packed.push_back(expert.Packed());
    const ExpertWeights shared = {PackedMatrix::FromRows(View(shared_gate_up.values, 2 * f, d)),
                                  PackedMatrix::FromRows(View(shared_down.values, d, f))};
    std::vector<BFloat16> expected(rows * d);
    kernels::Moe({.x = View(x.values, rows, d),
                  .experts = View(ids, rows, k),
                  .weights = View(std::as_const(weights), rows, k),
                  .routed = packed,
                  .shared = &shared,
                  .limit = limit,
                  .out = View(expected, rows, d)},
                 TestPool());

    const Routed routed(experts, x, ids, weights, k, limit, 0, GetParam());
    const int64_t padded = TestFp8Rows::Padded(rows);
    const auto gate_up_layer =
        Linear::FromFp8(View(shared_gate_up.codes, 2 * f, d),
                        View(shared_gate_up.scales, 2 * f / 128, d / 128), {.max_rows = 2048});
    const auto down_layer =
        Linear::FromFp8(View(shared_down.codes, d, f), View(shared_down.scales, d / 128, f / 128),
                        {.max_rows = 2048});
    DeviceArray<std::byte> workspace(LtMatmul::kWorkspaceBytes);
    DeviceArray<BFloat16> gate_up(padded * 2 * f), out(padded * d);
    DeviceArray<uint8_t> codes(padded * f);
    DeviceArray<float> scales(padded * f / 128);
    CUstream_st* stream = TestStream().get();
    gate_up_layer->Run(x.view(), MatrixView<BFloat16>(gate_up.get(), rows, 2 * f), workspace.get(),
                       stream);
    GateSharedExpert({.gate_up = {gate_up.get(), rows, 2 * f},
                      .limit = limit,
                      .v = {codes.get(), scales.get(), rows, f, f, padded}},
                     stream);
    down_layer->Run(Fp8Rows{codes.get(), scales.get(), rows, f, f, padded},
                    MatrixView<BFloat16>(out.get(), rows, d), workspace.get(), stream);
    CombineExperts({.y = {routed.y.get(), rows * k, d},
                    .slot = {routed.slot.get(), rows, k},
                    .shared = {out.get(), rows, d},
                    .out = {out.get(), rows, d}},
                   stream);
    // An activation next to a rounding boundary of its FP8 grid moves by a step, 2^-4 of itself.
    EXPECT_LE(RelativeError(out.Download(0, rows * d), expected), 4e-3)
        << rows << " rows, " << count << " experts, " << d << " to " << f;
  }
};

INSTANTIATE_TEST_SUITE_P(, MoeTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Portable" : "Fastest"; });

TEST_P(MoeTest, MatchesTheReferenceAtTheSmallModelsShape) {
  const Experts experts(8, 256, 128);
  for (const int64_t rows : {0, 1, 2, 7, 50, 131, 700}) {
    ExpectMatches(experts, rows, RandomIds(rows, 8, 2, rows), 2);
  }
}

TEST_P(MoeTest, ExpertsWithoutRowsAndOneWithAll) {
  const Experts experts(40, 512, 256);
  for (const int64_t rows : {1, 9, 33, 200}) {
    std::vector<int32_t> ids;
    for (int64_t row = 0; row < rows; ++row) {
      ids.push_back(static_cast<int32_t>(row % 3));
      ids.push_back(39);
    }
    ExpectMatches(experts, rows, ids, 2);
  }
}

TEST_P(MoeTest, MatchesTheReferenceAtTheFlashModelsWidth) {
  const Experts experts(7, 4096, 2048);
  ExpectMatches(experts, 12, RandomIds(12, 7, 6, 5), 6);
}

TEST_P(MoeTest, SlotsAreInOrderOfExpertAndRowAndPaddedRowsHaveNone) {
  struct Shape {
    int64_t rows;
    int experts, k;
  };
  for (const auto& [rows, experts, k] :
       {Shape{0, 4, 2}, Shape{1, 1, 1}, Shape{5, 8, 2}, Shape{1000, 256, 6}}) {
    std::vector<int32_t> ids = RandomIds(rows, experts, k, 7);
    if (rows > 1) std::fill(ids.end() - k, ids.end(), -1);
    const auto weights = RandomValues<float>(rows * k, 8);
    const DeviceArray<int32_t> device_ids(ids);
    const DeviceArray<float> device_weights(weights);
    DeviceArray<int32_t> begin(experts + 1), row(rows * k), slot(rows * k);
    DeviceArray<float> weight(rows * k);
    AssignSlots({.experts = {device_ids.get(), rows, k},
                 .weights = device_weights.get(),
                 .expert_count = experts,
                 .begin = begin.get(),
                 .row = row.get(),
                 .weight = weight.get(),
                 .slot = slot.get()},
                TestStream().get());
    std::vector<int32_t> expected_begin = {0}, expected_row, expected_slot(rows * k, -1);
    std::vector<float> expected_weight;
    for (int expert = 0; expert < experts; ++expert) {
      for (int64_t entry = 0; entry < rows * k; ++entry) {
        if (ids[entry] != expert) continue;
        expected_slot[entry] = static_cast<int32_t>(expected_row.size());
        expected_row.push_back(static_cast<int32_t>(entry / k));
        expected_weight.push_back(weights[entry]);
      }
      expected_begin.push_back(static_cast<int32_t>(expected_row.size()));
    }
    const auto used = static_cast<int64_t>(expected_row.size());
    EXPECT_EQ(begin.Download(), expected_begin);
    EXPECT_EQ(row.Download(0, used), expected_row);
    EXPECT_EQ(weight.Download(0, used), expected_weight);
    EXPECT_EQ(slot.Download(), expected_slot);
  }
}

TEST_P(MoeTest, ASlotDependsOnNeitherTheOthersNorTheWidthOfItsTile) {
  const int experts_count = 4, k = 2;
  const Experts experts(experts_count, 512, 256);
  const int64_t rows = 300, d = 512;
  const auto x = RandomWithOutliers<BFloat16>(rows * d, 9);
  const auto ids = RandomIds(rows, experts_count, k, 10);
  const auto weights = RandomValues<float>(rows * k, 11);
  const Routed all(experts, TestFp8Rows(x, rows, d), ids, weights, k, 10, 0, GetParam());
  const auto all_y = all.y.Download();
  const auto all_slots = all.slot.Download();
  // Two rows alone, with tiles of 8, 16, 32, 64 and 128 slots.
  const std::vector<BFloat16> few(x.begin() + 5 * d, x.begin() + 7 * d);
  const std::vector<int32_t> few_ids(ids.begin() + 5 * k, ids.begin() + 7 * k);
  const std::vector<float> few_weights(weights.begin() + 5 * k, weights.begin() + 7 * k);
  for (const int64_t expected : {4, 32, 64, 128, 1000}) {
    const Routed alone(experts, TestFp8Rows(few, 2, d), few_ids, few_weights, k, 10, expected,
                       GetParam());
    const auto y = alone.y.Download();
    const auto slots = alone.slot.Download();
    for (int entry = 0; entry < 2 * k; ++entry) {
      const auto mine = y.begin() + slots[entry] * d;
      const auto theirs = all_y.begin() + all_slots[5 * k + entry] * d;
      EXPECT_EQ(CountDifferent<BFloat16>({mine, mine + d}, {theirs, theirs + d}), 0)
          << "tile for " << expected << " slots, entry " << entry;
    }
  }
}

TEST_P(MoeTest, GroupsOfAWeightMayLieElevenPowersOfTwoApart) {
  const Experts experts(3, 512, 256, 12);
  ExpectMatches(experts, 150, RandomIds(150, 3, 2, 13), 2);
}

TEST_P(MoeTest, GroupsFurtherApartAreRoundedAndNanShowsInItsRow) {
  const int64_t d = 256, f = 128;
  Experts experts(2, d, f);
  Expert& first = experts.host[0];
  for (int64_t row = 0; row < d; ++row) {
    first.w2.scales[row * f / 32] = static_cast<uint8_t>(90 + row % 80);  // beside 118 to 121
  }
  first.w2.Widen();
  experts.host[1].w2.scales[3] = 255;
  experts.host[1].w2.Widen();
  experts.Pack();
  const TestFp8Rows x(RandomValues<BFloat16>(2 * d, 12), 2, d);
  const Routed routed(experts, x, {0, 1}, {1.0f, 1.0f}, 1, 10);
  const auto y = routed.y.Download();
  const auto codes = routed.hidden_codes.Download(0, f);
  const float scale = routed.hidden_scales.Download(0, 1)[0];
  std::vector<BFloat16> hidden;
  for (const uint8_t code : codes) hidden.emplace_back(DecodeE4m3(code) * scale);
  for (int64_t row = 0; row < d; ++row) {
    double want = 0, size = 0;
    for (int64_t i = 0; i < f; ++i) {
      const double product = static_cast<double>(static_cast<float>(hidden[i])) *
                             static_cast<float>(first.w2.values[row * f + i]);
      want += product;
      size += std::fabs(product);
    }
    EXPECT_NEAR(static_cast<float>(y[row]), want, std::fabs(want) / 256 + size / 4096) << row;
    EXPECT_EQ(std::isfinite(static_cast<float>(y[d + row])), row != 0) << row;
  }
}

}  // namespace
}  // namespace baton::kernels::cuda
