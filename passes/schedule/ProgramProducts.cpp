//===- ProgramProducts.cpp - matrices of a program ------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/schedule/ProgramBuilder.h"

#include "passes/bind/UnlessFlags.h"
#include "passes/schedule/MatrixWork.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::step;

void ProgramBuilder::buildProduct(const SmallStep &step) {
  Operation *op = step.ops.front();
  Value result = op->getResult(0);
  Location loc = op->getLoc();
  auto type =
      BufferType::get(builder.getContext(), getDims(result.getType()), compute);
  Value unless = cast<MatrixOpInterface>(op).getUnless();
  IntegerAttr period;
  if (unless) {
    period = builder.getI64IntegerAttr(getPeriod(unless, false));
    unless = values.lookup(unless);
  }
  if (auto product = dyn_cast<MatmulOp>(op)) {
    auto [lhs, lhsTransposed] = findMatrix(product.getLhs());
    auto [rhs, rhsTransposed] = findMatrix(product.getRhs());
    bool isWide = product.getAccumulate() && !compute.isF64();
    bool isRounded = product.getFactors().has_value();
    values.map(result, ProductOp::create(builder, loc, type, getBuffer(lhs),
                                         getBuffer(rhs), unless, lhsTransposed,
                                         rhsTransposed, isSymmetric(result),
                                         isWide, isRounded, period)
                           .getResult());
    return;
  }
  if (auto normal = dyn_cast<RandomNormalOp>(op)) {
    Type f64 = builder.getF64Type();
    auto getScalar = [&](Value value) {
      return mapOrMaterialize(builder, value, values, f64);
    };
    values.map(result,
               NormalsOp::create(builder, loc, type, normal.getName(),
                                 getScalar(normal.getSeed()),
                                 getScalar(normal.getCount()),
                                 values.lookup(normal.getPosition()), unless)
                   .getResult());
    return;
  }
  Value operand = getBuffer(op->getOperand(0));
  auto create = [&](auto kind, auto... more) {
    return decltype(kind)::create(builder, loc, type, operand, more..., unless)
        .getResult();
  };
  auto decompose = [&](auto kind) {
    return decltype(kind)::create(builder, loc, type, operand, unless, period)
        .getResult();
  };
  Value made = TypeSwitch<Operation *, Value>(op)
                   .Case([&](TransposeOp) { return create(TransposedOp()); })
                   .Case([&](FirstOp) { return create(LeadingOp()); })
                   .Case([&](DiagonalOp) { return create(DiagonalsOp()); })
                   .Case([&](EighOp) { return decompose(EigenvectorsOp()); })
                   .Case([&](QrOp) { return decompose(OrthonormalOp()); })
                   .Case([&](SortOp sort) {
                     return create(SortedOp(), getBuffer(sort.getKeys()));
                   });
  values.map(result, made);
}
