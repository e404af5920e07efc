#pragma once

#include <cstdint>
#include <type_traits>

// Non-owning row-major view of a matrix; rows may be further apart than they are long.

namespace baton::kernels {

template <typename T>
struct MatrixView {
  T* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;  // elements between the starts of two rows, >= cols

  MatrixView() = default;
  MatrixView(T* data, int64_t rows, int64_t cols) : MatrixView(data, rows, cols, cols) {}
  MatrixView(T* data, int64_t rows, int64_t cols, int64_t stride)
      : data(data), rows(rows), cols(cols), stride(stride) {}
  // A writable view serves wherever a read-only one is asked for.
  template <typename U>
  requires(std::is_same_v<const U, T>)
      MatrixView(const MatrixView<U>& other)  // NOLINT(google-explicit-constructor)
      : MatrixView(other.data, other.rows, other.cols, other.stride) {}

  constexpr T* Row(int64_t row) const { return data + row * stride; }
  MatrixView Rows(int64_t begin, int64_t count) const { return {Row(begin), count, cols, stride}; }
  MatrixView Columns(int64_t begin, int64_t count) const {
    return {data + begin, rows, count, stride};
  }
  explicit operator bool() const { return data != nullptr; }
};

}  // namespace baton::kernels
