//===- ProgramProducts.cpp - matrices of a program ------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/schedule/ProgramBuilder.h"

#include "dialect/Sources.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::step;

/// The buffer that a product reads, and whether with rows for columns: what is
/// transposed is read where it came from.
std::pair<Value, bool> ProgramBuilder::findMatrix(Value value) const {
  bool transposed = false;
  while (auto transpose = value.getDefiningOp<TransposeOp>()) {
    value = transpose.getOperand();
    transposed = !transposed;
  }
  return {value, transposed};
}

/// Whether the value's matrices are symmetric to the bit. Products add for (i,
/// j) and (j, i) the same numbers in the same order, so X Xᵀ is, and so is the
/// square of what is; and what is computed element by element of such matrices
/// and of numbers of the whole tensor.
bool ProgramBuilder::isSymmetric(Value value) const {
  auto enter = [&](Value next) {
    if (!isShaped(next.getType()))
      return Follow::Nothing;
    if (isa<BlockArgument>(next))
      return Follow::Stop;
    Operation *op = next.getDefiningOp();
    if (auto product = dyn_cast<MatmulOp>(op)) {
      auto [lhs, lhsTransposed] = findMatrix(product.getLhs());
      auto [rhs, rhsTransposed] = findMatrix(product.getRhs());
      if (lhs != rhs)
        return Follow::Stop;
      return lhsTransposed == rhsTransposed ? Follow::Operands
                                            : Follow::Nothing;
    }
    ArrayRef<StringAttr> dims = getDims(next.getType());
    bool isSquare = dims.size() >= 2 && dims.back() == dims[dims.size() - 2];
    auto parts = dyn_cast<ValueOpInterface>(op);
    bool isKept = isa<TransposeOp>(op) ||
                  (parts && parts.getParts().sharding == Sharding::Elementwise);
    return isSquare && isKept ? Follow::Operands : Follow::Stop;
  };
  return walkSources(value, enter, [](Operation *) {});
}

void ProgramBuilder::buildProduct(const SmallStep &step) {
  Operation *op = step.ops.front();
  Value result = op->getResult(0);
  Location loc = op->getLoc();
  auto type =
      BufferType::get(builder.getContext(), getDims(result.getType()), compute);
  Value unless = cast<MatrixOpInterface>(op).getUnless();
  if (unless)
    unless = values.lookup(unless);
  if (auto product = dyn_cast<MatmulOp>(op)) {
    auto [lhs, lhsTransposed] = findMatrix(product.getLhs());
    auto [rhs, rhsTransposed] = findMatrix(product.getRhs());
    bool isWide = product.getAccumulate() && !compute.isF64();
    values.map(result,
               ProductOp::create(builder, loc, type, getBuffer(lhs),
                                 getBuffer(rhs), unless, lhsTransposed,
                                 rhsTransposed, isSymmetric(result), isWide)
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
  Value made = TypeSwitch<Operation *, Value>(op)
                   .Case([&](TransposeOp) { return create(TransposedOp()); })
                   .Case([&](FirstOp) { return create(LeadingOp()); })
                   .Case([&](DiagonalOp) { return create(DiagonalsOp()); })
                   .Case([&](EighOp) { return create(EigenvectorsOp()); })
                   .Case([&](QrOp) { return create(OrthonormalOp()); })
                   .Case([&](SortOp sort) {
                     return create(SortedOp(), getBuffer(sort.getKeys()));
                   });
  values.map(result, made);
}
