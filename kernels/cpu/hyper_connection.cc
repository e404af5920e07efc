#include "kernels/hyper_connection.h"

#include <cmath>
#include <vector>

#include "common/base/check.h"
#include "kernels/cpu/isa/isa.h"

namespace baton::kernels {

namespace {

constexpr int64_t kTokens = 16;  // lanes of HcMixBlock

float InverseRms(const BFloat16* streams, int64_t n, float eps) {
  return 1.0f / std::sqrt(Isa().mean_square(streams, static_cast<int>(n)) + eps);
}

// (fn u) of all rows.
std::vector<float> Project(MatrixView<const BFloat16> streams, const PackedMatrix& fn,
                           ThreadPool& pool) {
  std::vector<float> result(streams.rows * fn.rows());
  Gemm(streams, fn, MatrixView<float>(result.data(), streams.rows, fn.rows()), pool);
  return result;
}

}  // namespace

void HcPre(const HcPreParams& params, ThreadPool& pool) {
  const MatrixView<const BFloat16> streams = params.streams;
  const int64_t d = params.x.cols;
  BATON_CHECK(streams.cols == kStreams * d && d % 16 == 0) << "width " << streams.cols;
  BATON_CHECK(params.fn->rows() == kMixes && params.scale.size() == 3 &&
              params.base.size() == kMixes && params.post.cols == kStreams &&
              params.comb.cols == kStreams * kStreams);
  const std::vector<float> projections = Project(streams, *params.fn, pool);
  const IsaKernels& isa = Isa();
  pool.For(streams.rows, kTokens, [&](int64_t begin, int64_t end) {
    float m[kMixes * kTokens] = {};
    float pre[kStreams * kTokens];
    float post[kStreams * kTokens];
    float comb[kStreams * kStreams * kTokens];
    for (int64_t row = begin; row < end; ++row) {
      const float r = InverseRms(streams.Row(row), streams.cols, params.norm_eps);
      for (int mix = 0; mix < kMixes; ++mix) {
        m[mix * kTokens + row - begin] = projections[row * kMixes + mix] * r;
      }
    }
    isa.hc_mix({.m = m,
                .scale = params.scale.data(),
                .base = params.base.data(),
                .iterations = params.iterations,
                .eps = params.hc_eps,
                .pre = pre,
                .post = post,
                .comb = comb});
    for (int64_t row = begin; row < end; ++row) {
      const int64_t lane = row - begin;
      float row_pre[kStreams];
      for (int j = 0; j < kStreams; ++j) {
        row_pre[j] = pre[j * kTokens + lane];
        params.post.Row(row)[j] = post[j * kTokens + lane];
      }
      for (int i = 0; i < kStreams * kStreams; ++i) {
        params.comb.Row(row)[i] = comb[i * kTokens + lane];
      }
      isa.hc_read(streams.Row(row), row_pre, d, params.x.Row(row));
    }
  });
}

void HcPost(const HcPostParams& params, ThreadPool& pool) {
  const int64_t d = params.output.cols;
  BATON_CHECK(params.streams.cols == kStreams * d && params.streams.rows == params.output.rows &&
              d % 16 == 0)
      << "width " << params.streams.cols;
  const IsaKernels& isa = Isa();
  pool.For(params.output.rows, 64, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      isa.hc_write(params.output.Row(row), params.post.Row(row), params.comb.Row(row), d,
                   params.streams.Row(row));
    }
  });
}

void HcHead(const HcHeadParams& params, ThreadPool& pool) {
  const MatrixView<const BFloat16> streams = params.streams;
  const int64_t d = params.x.cols;
  BATON_CHECK(streams.cols == kStreams * d && d % 16 == 0 && params.fn->rows() == kStreams &&
              params.base.size() == kStreams);
  const std::vector<float> projections = Project(streams, *params.fn, pool);
  const IsaKernels& isa = Isa();
  pool.For(streams.rows, 64, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float r = InverseRms(streams.Row(row), streams.cols, params.norm_eps);
      float pre[kStreams];
      for (int j = 0; j < kStreams; ++j) {
        const float m = projections[row * kStreams + j] * r * params.scale + params.base[j];
        pre[j] = 1.0f / (1.0f + std::exp(-m)) + params.hc_eps;
      }
      isa.hc_read(streams.Row(row), pre, d, params.x.Row(row));
    }
  });
}

}  // namespace baton::kernels
