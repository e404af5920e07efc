#include "kernels/moe.h"

#include <algorithm>
#include <vector>

#include "common/base/check.h"
#include "kernels/cpu/gemm_block.h"
#include "kernels/cpu/isa/isa.h"

namespace baton::kernels {

namespace {

// Slot s = row * (k + 1) + i: the i-th routed expert of a row, or its shared expert (i == k).
// Slots are grouped by expert; a task is one expert on a bounded number of its slots.
struct Task {
  const ExpertWeights* expert = nullptr;
  int64_t begin = 0;  // range of Plan::slots
  int64_t end = 0;
};

struct Plan {
  std::vector<int64_t> slots;
  std::vector<Task> tasks;
};

Plan MakePlan(const MoeParams& params) {
  const int64_t k = params.experts.cols;
  const int64_t experts = static_cast<int64_t>(params.routed.size());
  std::vector<std::vector<int64_t>> slots_of(experts + 1);
  for (int64_t row = 0; row < params.x.rows; ++row) {
    for (int64_t i = 0; i < k; ++i) {
      const int32_t expert = params.experts.Row(row)[i];
      BATON_CHECK(expert >= 0 && expert < experts) << "expert " << expert;
      slots_of[expert].push_back(row * (k + 1) + i);
    }
    slots_of[experts].push_back(row * (k + 1) + k);
  }
  Plan plan;
  plan.slots.reserve(params.x.rows * (k + 1));
  for (int64_t expert = 0; expert <= experts; ++expert) {
    const std::vector<int64_t>& slots = slots_of[expert];
    const ExpertWeights* weights = expert < experts ? &params.routed[expert] : params.shared;
    const int64_t base = static_cast<int64_t>(plan.slots.size());
    const int64_t count = static_cast<int64_t>(slots.size());
    for (int64_t begin = 0; begin < count; begin += kGemmBlockRows) {
      plan.tasks.push_back({weights, base + begin, base + std::min(begin + kGemmBlockRows, count)});
    }
    plan.slots.insert(plan.slots.end(), slots.begin(), slots.end());
  }
  return plan;
}

// y[slot] = y_e of the slot's row.
void RunTask(const MoeParams& params, const Plan& plan, const Task& task, MatrixView<BFloat16> y) {
  const IsaKernels& isa = Isa();
  const int64_t rows = task.end - task.begin;
  const int64_t d = params.x.cols;
  const int64_t f = task.expert->down.cols();
  const int64_t k = params.experts.cols;
  std::vector<BFloat16> gathered(rows * d);
  std::vector<BFloat16> gate_up(rows * 2 * f);
  std::vector<BFloat16> hidden(rows * f);
  std::vector<BFloat16> result(rows * d);
  for (int64_t i = 0; i < rows; ++i) {
    std::copy_n(params.x.Row(plan.slots[task.begin + i] / (k + 1)), d, gathered.data() + i * d);
  }
  GemmOnThread({gathered.data(), rows, d}, task.expert->gate_up, 0,
               PanelCount(task.expert->gate_up), {gate_up.data(), rows, 2 * f});
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t slot = plan.slots[task.begin + i];
    const float weight =
        slot % (k + 1) == k ? 1.0f : params.weights.Row(slot / (k + 1))[slot % (k + 1)];
    const BFloat16* gate = gate_up.data() + i * 2 * f;
    BFloat16* v = hidden.data() + i * f;
    isa.swiglu(gate, gate + f, weight, params.limit, static_cast<int>(f), v);
    isa.fake_quant_fp8(v, v, static_cast<int>(f), 128);
  }
  GemmOnThread({hidden.data(), rows, f}, task.expert->down, 0, PanelCount(task.expert->down),
               {result.data(), rows, d});
  for (int64_t i = 0; i < rows; ++i) {
    std::copy_n(result.data() + i * d, d, y.Row(plan.slots[task.begin + i]));
  }
}

}  // namespace

void Moe(const MoeParams& params, ThreadPool& pool) {
  const int64_t rows = params.x.rows;
  const int64_t d = params.x.cols;
  const int64_t slots_a_row = params.experts.cols + 1;
  const ExpertWeights& shared = *params.shared;
  BATON_CHECK(shared.gate_up.cols() == d && shared.down.rows() == d &&
              shared.gate_up.rows() == 2 * shared.down.cols() && shared.down.cols() % 128 == 0 &&
              d % 16 == 0)
      << "width " << d << ", expert width " << shared.down.cols();
  BATON_CHECK(params.experts.rows == rows && params.weights.rows == rows &&
              params.out.rows == rows && params.out.cols == d);
  const Plan plan = MakePlan(params);
  std::vector<BFloat16> y(rows * slots_a_row * d);
  const MatrixView<BFloat16> slots(y.data(), rows * slots_a_row, d);
  const int64_t task_work = 3 * d * shared.down.cols() * std::min(rows, kGemmBlockRows);
  const int64_t tasks_a_block =
      std::max<int64_t>(1, kGemmBlockWork / std::max<int64_t>(1, task_work));
  pool.For(static_cast<int64_t>(plan.tasks.size()), tasks_a_block, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) RunTask(params, plan, plan.tasks[i], slots);
  });
  pool.For(rows, 64, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      Isa().sum_rows(slots.Row(row * slots_a_row), slots_a_row, d, params.out.Row(row));
    }
  });
}

}  // namespace baton::kernels
