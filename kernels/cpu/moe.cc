#include "kernels/moe.h"

#include <algorithm>
#include <vector>

#include "common/base/check.h"
#include "kernels/cpu/gemm_block.h"
#include "kernels/cpu/isa/isa.h"

namespace baton::kernels {

namespace {

// What Moe, MoePart and MoeJoin have in common: rows and the experts that they go through.
struct Job {
  MatrixView<const BFloat16> x;
  MatrixView<const int32_t> experts = {};  // [rows, k]; MoeJoin has none
  MatrixView<const float> weights = {};
  int first_expert = 0;
  std::span<const ExpertWeights> routed = {};
  const ExpertWeights* shared = nullptr;  // MoePart has none
  float limit = 10;

  int64_t k() const { return experts.cols; }
  int64_t slots_a_row() const { return k() + (shared != nullptr ? 1 : 0); }
  // Of routed, or -1.
  int64_t Local(int32_t expert) const {
    const int64_t local = expert - first_expert;
    return local >= 0 && local < std::ssize(routed) ? local : -1;
  }
};

// Slot s = row * slots_a_row + i: the i-th routed expert of a row, or its shared expert (i == k).
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

Plan MakePlan(const Job& job) {
  const int64_t experts = std::ssize(job.routed);
  std::vector<std::vector<int64_t>> slots_of(experts + 1);
  for (int64_t row = 0; row < job.x.rows; ++row) {
    const int64_t first = row * job.slots_a_row();
    for (int64_t i = 0; i < job.k(); ++i) {
      const int64_t expert = job.Local(job.experts.Row(row)[i]);
      if (expert >= 0) slots_of[expert].push_back(first + i);
    }
    if (job.shared != nullptr) slots_of[experts].push_back(first + job.k());
  }
  Plan plan;
  plan.slots.reserve(job.x.rows * job.slots_a_row());
  for (int64_t expert = 0; expert <= experts; ++expert) {
    const std::vector<int64_t>& slots = slots_of[expert];
    const ExpertWeights* weights = expert < experts ? &job.routed[expert] : job.shared;
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
void RunTask(const Job& job, const Plan& plan, const Task& task, MatrixView<BFloat16> y) {
  const IsaKernels& isa = Isa();
  const int64_t rows = task.end - task.begin;
  const int64_t d = job.x.cols;
  const int64_t f = task.expert->down.cols();
  const int64_t each = job.slots_a_row();
  std::vector<BFloat16> gathered(rows * d);
  std::vector<BFloat16> gate_up(rows * 2 * f);
  std::vector<BFloat16> hidden(rows * f);
  std::vector<BFloat16> result(rows * d);
  for (int64_t i = 0; i < rows; ++i) {
    std::copy_n(job.x.Row(plan.slots[task.begin + i] / each), d, gathered.data() + i * d);
  }
  GemmOnThread({gathered.data(), rows, d}, task.expert->gate_up, 0,
               PanelCount(task.expert->gate_up), {gate_up.data(), rows, 2 * f});
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t slot = plan.slots[task.begin + i];
    const int64_t i_of_row = slot % each;
    const float weight = i_of_row == job.k() ? 1.0f : job.weights.Row(slot / each)[i_of_row];
    const BFloat16* gate = gate_up.data() + i * 2 * f;
    BFloat16* v = hidden.data() + i * f;
    isa.swiglu(gate, gate + f, weight, job.limit, static_cast<int>(f), v);
    isa.fake_quant_fp8(v, v, static_cast<int>(f), 128);
  }
  GemmOnThread({hidden.data(), rows, f}, task.expert->down, 0, PanelCount(task.expert->down),
               {result.data(), rows, d});
  for (int64_t i = 0; i < rows; ++i) {
    std::copy_n(result.data() + i * d, d, y.Row(plan.slots[task.begin + i]));
  }
}

// y[slot] of all slots that have an expert; the others stay as they were.
void RunExperts(const Job& job, MatrixView<BFloat16> y, ThreadPool& pool) {
  const Plan plan = MakePlan(job);
  if (plan.tasks.empty()) return;
  const int64_t work = 3 * job.x.cols * plan.tasks.front().expert->down.cols() *
                       std::min(job.x.rows, kGemmBlockRows);
  const int64_t tasks_a_block = std::max<int64_t>(1, kGemmBlockWork / std::max<int64_t>(1, work));
  pool.For(std::ssize(plan.tasks), tasks_a_block, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) RunTask(job, plan, plan.tasks[i], y);
  });
}

void CheckExpert(const ExpertWeights& expert, int64_t d) {
  BATON_CHECK(expert.gate_up.cols() == d && expert.down.rows() == d &&
              expert.gate_up.rows() == 2 * expert.down.cols() && expert.down.cols() % 128 == 0 &&
              d % 16 == 0)
      << "width " << d << ", expert width " << expert.down.cols();
}

void Add(const BFloat16* y, int64_t n, float* sum) {
  for (int64_t i = 0; i < n; ++i) sum[i] += static_cast<float>(y[i]);
}

constexpr int64_t kRowsABlock = 64;

}  // namespace

void Moe(const MoeParams& params, ThreadPool& pool) {
  const int64_t rows = params.x.rows;
  const int64_t d = params.x.cols;
  CheckExpert(*params.shared, d);
  BATON_CHECK(params.experts.rows == rows && params.weights.rows == rows &&
              params.out.rows == rows && params.out.cols == d);
  const Job job{.x = params.x,
                .experts = params.experts,
                .weights = params.weights,
                .routed = params.routed,
                .shared = params.shared,
                .limit = params.limit};
  const int64_t each = job.slots_a_row();
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < job.k(); ++i) {
      const int32_t expert = params.experts.Row(row)[i];
      BATON_CHECK(job.Local(expert) >= 0) << "expert " << expert;
    }
  }
  std::vector<BFloat16> y(rows * each * d);
  const MatrixView<BFloat16> slots(y.data(), rows * each, d);
  RunExperts(job, slots, pool);
  pool.For(rows, kRowsABlock, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      Isa().sum_rows(slots.Row(row * each), each, d, params.out.Row(row));
    }
  });
}

void MoePart(const MoePartParams& params, ThreadPool& pool) {
  const int64_t rows = params.x.rows;
  const int64_t d = params.x.cols;
  const int64_t k = params.experts.cols;
  BATON_CHECK(params.experts.rows == rows && params.weights.rows == rows &&
              params.sum.rows == rows && params.sum.cols == d);
  if (!params.routed.empty()) CheckExpert(params.routed.front(), d);
  const Job job{.x = params.x,
                .experts = params.experts,
                .weights = params.weights,
                .first_expert = params.first_expert,
                .routed = params.routed,
                .limit = params.limit};
  std::vector<BFloat16> y(rows * k * d);
  const MatrixView<BFloat16> slots(y.data(), rows * k, d);
  RunExperts(job, slots, pool);
  pool.For(rows, kRowsABlock, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      float* sum = params.sum.Row(row);
      std::fill_n(sum, d, 0.0f);
      for (int64_t i = 0; i < k; ++i) {
        if (job.Local(params.experts.Row(row)[i]) >= 0) Add(slots.Row(row * k + i), d, sum);
      }
    }
  });
}

void MoeJoin(const MoeJoinParams& params, ThreadPool& pool) {
  const int64_t rows = params.x.rows;
  const int64_t d = params.x.cols;
  CheckExpert(*params.shared, d);
  BATON_CHECK(params.out.rows == rows && params.out.cols == d);
  for (const MatrixView<const float>& sum : params.sums) {
    BATON_CHECK(sum.rows == rows && sum.cols == d) << "[" << sum.rows << ", " << sum.cols << "]";
  }
  std::vector<BFloat16> y(rows * d);
  const MatrixView<BFloat16> slots(y.data(), rows, d);
  RunExperts({.x = params.x, .shared = params.shared, .limit = params.limit}, slots, pool);
  pool.For(rows, kRowsABlock, [&](int64_t begin, int64_t end) {
    std::vector<float> total(d);
    for (int64_t row = begin; row < end; ++row) {
      std::fill(total.begin(), total.end(), 0.0f);
      for (const MatrixView<const float>& sum : params.sums) {
        for (int64_t i = 0; i < d; ++i) total[i] += sum.Row(row)[i];
      }
      Add(slots.Row(row), d, total.data());
      for (int64_t i = 0; i < d; ++i) params.out.Row(row)[i] = BFloat16(total[i]);
    }
  });
}

}  // namespace baton::kernels
