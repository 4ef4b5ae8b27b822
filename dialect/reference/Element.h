//===- Element.h - one element of a value, and all that it may be --------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_DIALECT_REFERENCE_ELEMENT_H
#define STEPC_DIALECT_REFERENCE_ELEMENT_H

#include "dialect/reference/Interval.h"

#include <cstdint>

namespace mlir::step::reference {

/// One element of a value in exact mode, by the value's type: a number, or an
/// integer, which is a count or, as 0 or 1, a condition.
struct Element {
  double number = 0.0;
  int64_t integer = 0;

  static Element of(double number) { return {number, 0}; }
  static Element ofInteger(int64_t integer) { return {0.0, integer}; }
  bool holds() const { return integer != 0; }
};

/// The same in bound mode: counts are known.
struct BoundElement {
  Interval number = {0.0, 0.0, false};
  int64_t integer = 0;
  Truth truth = Truth::False;
  /// Of an operation that jumps: whether the operands lie on both sides.
  bool isOpen = false;

  static BoundElement of(Interval number) {
    BoundElement element;
    element.number = number;
    return element;
  }
  static BoundElement ofInteger(int64_t integer) {
    BoundElement element;
    element.integer = integer;
    return element;
  }
  static BoundElement of(Truth truth) {
    BoundElement element;
    element.truth = truth;
    return element;
  }
};

} // namespace mlir::step::reference

#endif // STEPC_DIALECT_REFERENCE_ELEMENT_H
