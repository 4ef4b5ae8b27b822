//===- Meaning.h - what an operation computes --------------------*- C++
//-*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_DIALECT_REFERENCE_MEANING_H
#define STEPC_DIALECT_REFERENCE_MEANING_H

#include "dialect/Step.h"
#include "dialect/reference/Rounding.h"

namespace mlir::step::reference {

/// One element of a result, computed from one element of each operand. The
/// operands are values of `compute`, and each operation is rounded to it.
using Meaning = double (*)(ArrayRef<double> operands, Format compute);

/// The meaning of an arithmetic operation; null for any other operation.
///
/// In f32 the operations are computed in double and then rounded, which gives
/// the correctly rounded result: double has more than twice the bits of f32
/// and two to spare, so that the second rounding is innocuous for +, -, *, /
/// and the square root (Figueroa, "When is double rounding innocuous?", 1995).
Meaning getMeaning(Operation *op);

/// The larger value as step.maximum describes it.
double maximum(double x, double y);

/// `base` to the power of `exponent`, as step.powi describes it.
double powi(double base, int64_t exponent);

/// `base` to the power of `exponent`, as step.pow describes it.
double pow(double base, double exponent);

} // namespace mlir::step::reference

#endif // STEPC_DIALECT_REFERENCE_MEANING_H
