#pragma once

#include <cstdint>

struct CUstream_st;  // CUDA's stream handle points to one

namespace baton::kernels::cuda {

// What a step computes, as the device sees it: the rows of all sequences, one after another, a
// sequence's rows at consecutive positions. A prefill chunk has hundreds of rows a sequence, a
// decoding one 1 to 8; ops do not tell them apart. Arrays lie in device memory and may be written
// by earlier work of the same stream; the host knows only the maxima, so that a captured graph can
// be replayed over other lengths. A graph's unused rows are padded: sequence -1, and no op reads or
// writes anything on their behalf but the row's own output. Unused sequences have no rows.
struct BatchView {
  int rows = 0;       // rows of the launch, padded ones included
  int sequences = 0;  // of the launch, unused ones included
  int max_rows = 0;   // no sequence has more rows than that
  int max_pages = 0;  // stride of the page table

  const int32_t* position = nullptr;    // [rows] position of a row in its sequence
  const int32_t* sequence = nullptr;    // [rows] -1: padded
  const int32_t* row_begin = nullptr;   // [sequences + 1] first row of a sequence
  const int32_t* start = nullptr;       // [sequences] position of a sequence's first row
  const int32_t* slot = nullptr;        // [sequences] which state slot holds its rings
  const int32_t* page_table = nullptr;  // [sequences, max_pages] page ids, undefined past the end
};

// One layer's rings of all state slots: position p of the sequence in slot s lies in row p % rows
// of data + s * slot_stride.
template <typename T>
struct SlotRings {
  T* data = nullptr;
  int rows = 0;
  int width = 0;            // elements a row
  int64_t slot_stride = 0;  // elements between slots
};

}  // namespace baton::kernels::cuda
