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

/// The operation of that kind on the same matrix, left out where this one is.
template <typename OpT>
static Value findBeside(Operation *op) {
  Value unless = cast<MatrixOpInterface>(op).getUnless();
  for (Operation *user : op->getOperand(0).getUsers())
    if (auto other = dyn_cast<OpT>(user))
      if (other.getOperand() == op->getOperand(0) &&
          other.getUnless() == unless)
        return other.getResult();
  return {};
}

/// Whichever is asked for first makes both.
void ProgramBuilder::buildEigen(Operation *op, Value unless,
                                IntegerAttr period) {
  if (values.contains(op->getResult(0)))
    return;
  Value vectors = findBeside<EighOp>(op);
  Value numbers = findBeside<EigenvaluesOp>(op);
  auto getType = [&](Value value) {
    return BufferType::get(builder.getContext(), getDims(value.getType()),
                           compute);
  };
  auto made =
      EigenvectorsOp::create(builder, op->getLoc(), getType(op->getOperand(0)),
                             numbers ? Type(getType(numbers)) : Type(),
                             getBuffer(op->getOperand(0)), unless, period);
  if (vectors)
    values.map(vectors, made.getResult());
  if (numbers)
    values.map(numbers, made.getValues());
}

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
  if (isa<EighOp, EigenvaluesOp>(op))
    return buildEigen(op, unless, period);
  if (isa<IndexOp>(op)) {
    values.map(result,
               IndicesOp::create(builder, loc, type, unless).getResult());
    return;
  }
  Value operand = getBuffer(op->getOperand(0));
  auto create = [&](auto kind, auto... more) {
    return decltype(kind)::create(builder, loc, type, operand, more..., unless)
        .getResult();
  };
  Value made = TypeSwitch<Operation *, Value>(op)
                   .Case([&](TransposeOp) { return create(TransposedOp()); })
                   .Case([&](FirstOp) { return create(LeadingOp()); })
                   .Case([&](DiagonalOp) { return create(DiagonalsOp()); })
                   .Case([&](QrOp) {
                     return OrthonormalOp::create(builder, loc, type, operand,
                                                  unless, period)
                         .getResult();
                   })
                   .Case([&](SortOp sort) {
                     return create(SortedOp(), getBuffer(sort.getKeys()));
                   });
  values.map(result, made);
}
