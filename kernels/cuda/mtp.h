#pragma once

#include <cstdint>

#include "common/base/bf16.h"
#include "kernels/cuda/batch.h"
#include "kernels/matrix.h"

struct CUstream_st;

namespace baton::kernels::cuda {

// kernels/mtp.h: h[t, j] = bf16(e[t] + h[t, j]), in place on h [rows, streams * D], e [rows, D].
// D is a multiple of 8, rows are aligned to 16 bytes.
void AddEmbeddingToStreams(MatrixView<const BFloat16> e, MatrixView<BFloat16> h,
                           CUstream_st* stream);

// How far drafts were right. Row r of a verifying sequence read tokens[r] and gave sampled[r]; a
// draft, which is the token of every row but a sequence's first, is accepted if and only if the row
// before it sampled it and all drafts before it were accepted.
//
// Nothing has to be undone on the device for a rejected draft: all rings are indexed by position
// and deep enough (BatchView, SlotRings), so going on from start + accepted + 1 overwrites what the
// rejected rows left. Where a sequence ends (stop tokens, max_tokens) is the host's business.
struct AcceptDraftsParams {
  BatchView batch;
  const int32_t* tokens = nullptr;   // [rows]
  const int32_t* sampled = nullptr;  // [rows]
  int32_t* accepted = nullptr;       // out [sequences]; 0 without rows
  int32_t* last = nullptr;  // out [sequences]: the token sampled after them; -1 without rows
};
void AcceptDrafts(const AcceptDraftsParams& params, CUstream_st* stream);

}  // namespace baton::kernels::cuda
