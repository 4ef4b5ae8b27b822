//===- Arrays.h - tensors of any layout -----------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_TEST_SUPPORT_ARRAYS_H
#define STEPC_TEST_SUPPORT_ARRAYS_H

#include "dlpack/dlpack.h"

#include <cstdint>
#include <string>
#include <vector>

namespace stepc_test {

enum class Type { F32, F64, BF16 };

int64_t getSize(Type type);
DLDataType getDLType(Type type);

enum class Layout {
  RowMajor,
  ColumnMajor,
  /// Rows are further apart than they are long.
  Padded,
  /// Every second element of the last dim.
  Sliced,
  /// All elements in one place.
  Expanded,
  /// The first dim runs backwards.
  Backwards
};

/// A tensor with memory of its own. Elements are counted in row-major order of
/// the shape, whatever the layout.
class Array {
public:
  Array(Type type, std::vector<int64_t> shape, Layout layout = Layout::RowMajor,
        int64_t misalignment = 0);

  const DLTensor *dl() const { return &tensor; }
  DLTensor *dl() { return &tensor; }
  Array(const Array &) = delete;
  Array(Array &&) = default;

  int64_t size() const;
  double get(int64_t i) const;
  void set(int64_t i, double value);

  /// Random values, some of them special: NaN, Inf, denormals, zeros.
  void fill(uint32_t seed, bool special = false);

  /// The bits of all elements in order, each NaN as the same NaN.
  std::string bits() const;

  Type type;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;

private:
  char *locate(int64_t i) const;

  std::vector<char> memory;
  /// The first element; tests spoil the tensor's own address.
  char *origin;
  DLTensor tensor;
};

/// The bits of values as an array of the type would keep them.
std::string bitsOf(Type type, const std::vector<double> &values);

/// `value` rounded to the type.
double roundTo(Type type, double value);

/// A view of foreign memory; `shape` and `strides` must outlive it.
DLTensor makeView(void *data, Type type, std::vector<int64_t> &shape,
                  std::vector<int64_t> *strides = nullptr);

} // namespace stepc_test

#endif // STEPC_TEST_SUPPORT_ARRAYS_H
