//===- Combiners.cpp - partial results, one with another -----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/lower/Combiners.h"

#include <limits>

using namespace mlir;
using namespace mlir::step;

Value mlir::step::emitNeutral(const Words &w, Combiner combiner,
                              int64_t lanes) {
  double neutral = combiner == Combiner::Sum
                       ? 0.0
                       : -std::numeric_limits<double>::infinity();
  if (!lanes)
    return w.number(neutral);
  auto type = VectorType::get({lanes}, w.b.getF64Type());
  return arith::ConstantOp::create(w.b, w.loc,
                                   DenseElementsAttr::get(type, neutral));
}

Value mlir::step::emitCombined(const Words &w, Combiner combiner, Value x,
                               Value y) {
  if (combiner == Combiner::Sum)
    return arith::AddFOp::create(w.b, w.loc, x, y);
  return arith::MaximumFOp::create(w.b, w.loc, x, y);
}

Value mlir::step::emitWidened(const Words &w, Value value) {
  Type type = value.getType();
  Type wide = w.b.getF64Type();
  if (auto vector = dyn_cast<VectorType>(type))
    wide = vector.clone(wide);
  return type == wide ? value : arith::ExtFOp::create(w.b, w.loc, wide, value);
}

/// The bits of a negative f64 order the wrong way round: all but the sign are
/// inverted. Its own inverse.
static Value emitOrdered(const Words &w, Value bits) {
  Value sign = arith::ShRSIOp::create(w.b, w.loc, bits, w.constantWord(63));
  return w.differ(bits, w.both(sign, w.constantWord(INT64_MAX)));
}

Value mlir::step::emitSent(const Words &w, Combiner combiner, Value value) {
  if (combiner != Combiner::Amax)
    return value;
  Value bits = w.toBits(value);
  Value isNaN = arith::CmpFOp::create(w.b, w.loc, arith::CmpFPredicate::UNO,
                                      value, value);
  return w.select(isNaN, w.constantWord(INT64_MAX), emitOrdered(w, bits));
}

Value mlir::step::emitReceived(const Words &w, Combiner combiner, Value address,
                               Value index) {
  if (combiner != Combiner::Amax)
    return w.load(w.view(address, w.b.getF64Type()), index);
  return w.toNumber(emitOrdered(w, w.load(w.words(address), index)));
}

Value mlir::step::emitReceived(const Words &w, Combiner combiner,
                               ArrayRef<Value> addresses, Value index) {
  Value result;
  for (Value address : addresses) {
    Value part = emitReceived(w, combiner, address, index);
    result = result ? emitCombined(w, combiner, result, part) : part;
  }
  return result;
}
