//===- RowLanes.cpp - what a phase carries along a row --------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/lower/cpu/RowLanes.h"

#include "stepc/kernel_abi.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace mlir::step;

RowLanes::RowLanes(const Words &w, TraverseOp traverse,
                   const Accumulator &accumulator)
    : w(w), combiner(accumulator.combiner), type(w.b.getF64Type()) {
  Value value = traverse.getBody()
                    .front()
                    .getTerminator()
                    ->getOperands()[accumulator.yielded];
  if (combiner != Combiner::Amax || !value.getType().isF32())
    return;
  type = w.b.getF32Type();
  isMagnitude = value.getDefiningOp<math::AbsFOp>() != nullptr;
}

VectorType RowLanes::getLanes(Type element) const {
  return VectorType::get({STEPC_LANES}, element);
}

Value RowLanes::emitNeutral() const {
  if (type.isF64())
    return step::emitNeutral(w, combiner, STEPC_LANES);
  auto infinity = APFloat::getInf(type.getFloatSemantics(), /*Negative=*/true);
  TypedAttr element = w.b.getFloatAttr(type, infinity);
  if (isMagnitude)
    element = w.b.getIntegerAttr(w.b.getI32Type(), infinity.bitcastToAPInt());
  VectorType lanes = getLanes(element.getType());
  return arith::ConstantOp::create(w.b, w.loc,
                                   DenseElementsAttr::get(lanes, element));
}

Value RowLanes::emitCombined(Value lanes, Value values) const {
  if (type.isF64())
    return step::emitCombined(w, combiner, lanes, step::emitWidened(w, values));
  if (!isMagnitude)
    return step::emitCombined(w, combiner, lanes, values);
  Value bits = arith::BitcastOp::create(w.b, w.loc, lanes.getType(), values);
  return arith::MaxSIOp::create(w.b, w.loc, lanes, bits);
}

Value RowLanes::emitWidened(Value lanes) const {
  if (isMagnitude)
    lanes = arith::BitcastOp::create(w.b, w.loc, getLanes(type), lanes);
  return step::emitWidened(w, lanes);
}
