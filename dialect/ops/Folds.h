//===- Folds.h - folds that change no value -------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// A fold may replace a tensor by another one only where both have the same bits
// for every input: x * 1, x / 1, x - 0, x + (-0), but not x + 0, which turns -0
// into +0. Scalars fold in f64, as the compiled code computes them.
//
// A value that step.return stores is rounded where it is defined, so it must
// not be replaced by a value that has other uses; `step-mark-stored` makes the
// rounding an operation of its own, and until then such values do not fold.
#ifndef STEPC_DIALECT_OPS_FOLDS_H
#define STEPC_DIALECT_OPS_FOLDS_H

#include "dialect/Step.h"

#include <cmath>

namespace mlir::step {

/// The constant value of a scalar operand.
inline std::optional<double> asConstant(Attribute attr) {
  if (auto number = dyn_cast_or_null<FloatAttr>(attr))
    return number.getValueAsDouble();
  return std::nullopt;
}

inline bool isConstant(Attribute attr, double value) {
  std::optional<double> number = asConstant(attr);
  return number && *number == value &&
         std::signbit(*number) == std::signbit(value);
}

/// The attribute for a folded scalar. NaN does not fold: its bits are not the
/// language's business.
inline OpFoldResult foldTo(MLIRContext *context, double value) {
  if (std::isnan(value))
    return {};
  return FloatAttr::get(Float64Type::get(context), value);
}

/// True where the result is stored by the rule's return as it is.
inline bool isStoredDirectly(Operation *op) {
  return llvm::any_of(op->getUsers(),
                      [](Operation *user) { return isa<ReturnOp>(user); });
}

/// `value` as a fold of `op`, if it has the type of the result and may take its
/// place.
inline OpFoldResult replaceBy(Operation *op, Value value) {
  if (value.getType() != op->getResult(0).getType() || isStoredDirectly(op))
    return {};
  return value;
}

template <typename Fn>
OpFoldResult foldUnary(Operation *op, Attribute operand, Fn fn) {
  std::optional<double> value = asConstant(operand);
  // In bodies of programs elements may be f32.
  return value && op->getResult(0).getType().isF64()
             ? foldTo(op->getContext(), fn(*value))
             : OpFoldResult();
}

template <typename Fn>
OpFoldResult foldBinary(Operation *op, Attribute lhs, Attribute rhs, Fn fn) {
  std::optional<double> left = asConstant(lhs), right = asConstant(rhs);
  // A constant beside a tensor is no scalar result.
  if (!left || !right || !op->getResult(0).getType().isF64())
    return {};
  return foldTo(op->getContext(), fn(*left, *right));
}

} // namespace mlir::step

#endif // STEPC_DIALECT_OPS_FOLDS_H
