//===- BoundTensor.h - what the caller bound ----------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CORE_BOUNDTENSOR_H
#define STEPC_CORE_BOUNDTENSOR_H

#include "core/RowClass.h"
#include "core/TensorView.h"

#include <algorithm>
#include <memory>

namespace stepc {

struct BoundTensor {
  int32_t variant = 0;
  int32_t group = 0;
  int32_t rank = 0;
  /// Of operands of fewer dims: another one where `rank` is that of a flat
  /// range.
  int32_t reducedRank = 0;
  int32_t rowClass = 0;
  /// The word of the row that holds the gradient's address.
  int32_t gradWord = 0;
  int64_t row = 0;
  /// The dims of Variant::layout, a bit for each, whose first part another rank
  /// has. It counts what is no part over them.
  uint64_t laterDims = 0;
  RowSize size;
  DLDataType gradType = {0, 0, 0};
  uint8_t gradItemSize = 1;
  /// The operands that are kept as codes, a bit for each.
  uint64_t coded = 0;
  /// Whether the rank has a range of the elements.
  bool flat = false;
  /// Whether another rank owns it: this one has none of its states.
  bool elsewhere = false;
  /// Whether that rank steps it in the whole step under way, or the last one.
  bool follows = false;
  /// Of the plan's entry tensors the one that it is a part of; -1: it was bound
  /// without an entry.
  int32_t entry = -1;
  /// Whether another rank has the same part of the tensor and counts for it.
  bool isCopy = false;
  bool hasGrad = false;
  /// Whether the classes' lists have its chunks.
  bool listed = false;
  /// Whether the step under way has stepped it.
  bool stepped = false;
  /// The extents, then the strides of each operand as the caller gave them;
  /// then, where some operand is reduced, extents and strides of each, which
  /// mean nothing for others.
  std::unique_ptr<int64_t[]> dims;

  bool isCoded(size_t operand) const {
    return operand < 64 && coded >> operand & 1;
  }
  int32_t getMaxRank() const { return std::max(rank, reducedRank); }
  int64_t *getExtents() const { return dims.get(); }
  int64_t *getStrides(size_t operand) const {
    return dims.get() + int64_t(operand + 1) * rank;
  }
  int64_t *getReducedExtents(size_t operands, size_t operand) const {
    return getStrides(operands) + int64_t(2 * operand) * reducedRank;
  }
  int64_t *getReducedStrides(size_t operands, size_t operand) const {
    return getReducedExtents(operands, operand) + reducedRank;
  }
};

/// What the operand of a bound tensor looks like, at `address`.
View makeView(const BoundTensor &tensor, const Variant &variant, size_t operand,
              uintptr_t address);

} // namespace stepc

#endif // STEPC_CORE_BOUNDTENSOR_H
