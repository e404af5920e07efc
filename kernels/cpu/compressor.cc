#include "kernels/compressor.h"

#include "common/base/check.h"
#include "kernels/cpu/isa/isa.h"

namespace baton::kernels {

namespace {

// The candidates of one entry: where their c and g parts lie.
struct Candidates {
  const float* c[kHcaRatio];
  const float* g[kHcaRatio];
  int count = 0;
};

// `part` 0 is the a half (or all of HCA), 1 the b half of a CSA row.
void AddTokens(const PoolEntriesParams& params, int64_t begin, int64_t end, int part,
               Candidates& candidates) {
  const int64_t gate_offset = params.chunk.cols / 2;
  for (int64_t position = begin; position < end; ++position) {
    if (position < 0) continue;
    const float* row = position < params.chunk_start
                           ? params.ring.Row(position)
                           : params.chunk.Row(position - params.chunk_start);
    candidates.c[candidates.count] = row + part * params.head_dim;
    candidates.g[candidates.count] = row + gate_offset + part * params.head_dim;
    ++candidates.count;
  }
}

}  // namespace

void AddPositionBias(MatrixView<float> rows, MatrixView<const float> ape, int64_t first_position) {
  BATON_CHECK(rows.cols == 2 * ape.cols) << "row " << rows.cols << ", ape " << ape.cols;
  for (int64_t i = 0; i < rows.rows; ++i) {
    float* gate = rows.Row(i) + ape.cols;
    const float* bias = ape.Row((first_position + i) % ape.rows);
    for (int64_t channel = 0; channel < ape.cols; ++channel) gate[channel] += bias[channel];
  }
}

void PoolEntries(const PoolEntriesParams& params, ThreadPool& pool) {
  const bool overlapping = params.ratio == kCsaRatio;
  BATON_CHECK(overlapping || params.ratio == kHcaRatio) << "ratio " << params.ratio;
  const int64_t row_width = int64_t{params.head_dim} * (overlapping ? 4 : 2);
  BATON_CHECK(params.chunk.cols == row_width && params.ring.width == row_width &&
              params.pooled.cols == params.head_dim && params.head_dim % 16 == 0)
      << "row " << params.chunk.cols << ", head_dim " << params.head_dim;
  BATON_CHECK(params.pooled.rows == 0 || (params.first_entry + params.pooled.rows) * params.ratio <=
                                             params.chunk_start + params.chunk.rows)
      << "entry not closed by the chunk";
  const IsaKernels& isa = Isa();
  pool.For(params.pooled.rows, overlapping ? 16 : 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first_token = (params.first_entry + i) * params.ratio;
      Candidates candidates;
      if (overlapping) AddTokens(params, first_token - kCsaRatio, first_token, 0, candidates);
      AddTokens(params, first_token, first_token + params.ratio, overlapping ? 1 : 0, candidates);
      isa.pool({.c = candidates.c,
                .g = candidates.g,
                .count = candidates.count,
                .channels = params.head_dim,
                .out = params.pooled.Row(i)});
    }
  });
}

}  // namespace baton::kernels
