//===- Pieces.h - elements that are converted, copied and added up --------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What an engine does with gradients and parameters that cross ranks, in its
// memory: on threads of the processor (core/TransferWork.h), or by launches on
// a device. The bits are the same (core/Addends.h).
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CORE_PIECES_H
#define STEPC_CORE_PIECES_H

#include "core/Storage.h"

#include <cstddef>
#include <cstdint>

namespace stepc {

/// Elements that become elements of another type, or are copied. They are
/// divided before, in the type of sums, where the divisor is not 1.
struct ConvertPiece {
  /// 0: zeros.
  uintptr_t source;
  uintptr_t target;
  int64_t count;
  Storage from;
  Storage to;
  double divisor;
  /// The same piece has the same place in each step, for who keeps a list of
  /// them: pieces that follow each other have places that do.
  size_t place;
};

/// Rows of elements that are added up in their order, in the type of the sum,
/// which is then divided where the divisor is not 1, and with `adds` added to
/// what the target has.
struct RowSum {
  uintptr_t rows;
  /// From a row to the next, in elements.
  int64_t stride;
  int64_t numRows;
  uintptr_t target;
  int64_t count;
  Storage wire;
  /// F32 or F64.
  Storage sum;
  double divisor;
  bool adds;
};

} // namespace stepc

#endif // STEPC_CORE_PIECES_H
