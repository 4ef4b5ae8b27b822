//===- Reassociation.cpp - what a reassociable reduction may be -----------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "dialect/Reassociation.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace mlir::step;

/// What the return stores is rounded on its way to all uses.
static bool isReturned(Value value) {
  return llvm::any_of(value.getUsers(), llvm::IsaPred<ReturnOp>);
}

/// The operation that makes the value, which no rounding comes behind.
template <typename OpT>
static OpT getExact(Value value) {
  auto op = value.getDefiningOp<OpT>();
  return op && !isReturned(value) ? op : OpT();
}

/// Dims of `value` that are 1 in `factor`; none where it is no tensor of as
/// many dims, or has one of them elsewhere: they are reduced by their names.
static SmallVector<Attribute> getMissingDims(Value value, Value factor) {
  SmallVector<Attribute> missing;
  ArrayRef<StringAttr> dims = getDims(value.getType());
  ArrayRef<StringAttr> others = getDims(factor.getType());
  if (dims.size() != others.size())
    return missing;
  for (auto [dim, other] : llvm::zip(dims, others))
    if (dim != other && other.getValue() == "1" &&
        !llvm::is_contained(missing, dim)) // [n, n] is reduced over n
      missing.push_back(dim);
  for (auto [dim, other] : llvm::zip(dims, others))
    if (llvm::is_contained(missing, dim) && (dim == other || isAnyRank(dim)))
      return {};
  return missing;
}

/// Whether no element is below zero, as far as can be seen. `depth` keeps it
/// from following shared operands again and again.
static bool isNonNegative(Value value, unsigned depth = 6) {
  Operation *op = value.getDefiningOp();
  if (!op || depth == 0)
    return false;
  if (auto constant = dyn_cast<ConstantOp>(op)) {
    auto number = dyn_cast<FloatAttr>(constant.getValue());
    return number && number.getValueAsDouble() >= 0.0;
  }
  if (isa<SqrtOp, AbsOp>(op))
    return true;
  if (isa<MulOp>(op) && op->getOperand(0) == op->getOperand(1))
    return true;
  return isa<AddOp, MulOp, DivOp, MaximumOp, MinimumOp>(op) &&
         llvm::all_of(op->getOperands(), [&](Value operand) {
           return isNonNegative(operand, depth - 1);
         });
}

namespace {
/// A factor of each element, r * c, where c lacks dims.
struct Factors {
  Value row, column;
};

/// Makes the form of one reduction of x * x.
class Expansion {
public:
  Expansion(OpBuilder &builder, ReductionOpInterface reduction)
      : b(builder), reduction(reduction), loc(reduction->getLoc()) {}

  Value run();

private:
  Value reduce(Value value, ArrayAttr over = {});
  Value reduceByColumn(Value value, Value column);
  Value reduceBounded(Value value, MinimumOp factor);

  OpBuilder &b;
  ReductionOpInterface reduction;
  Location loc;
};
} // namespace

Value Expansion::reduce(Value value, ArrayAttr over) {
  if (isa<MeanOp>(reduction))
    return MeanOp::create(b, loc, value, over, ArrayAttr(), Value());
  return SumOp::create(b, loc, value, over, ArrayAttr(), Value());
}

/// Of (value * column)^2.
Value Expansion::reduceByColumn(Value value, Value column) {
  auto over = b.getArrayAttr(getMissingDims(value, column));
  Value squares = MulOp::create(b, loc, value, value);
  Value reduced = reduce(squares, over);
  Value half = MulOp::create(b, loc, reduced, column);
  Value whole = MulOp::create(b, loc, half, column);
  return reduce(whole);
}

/// r * c in their order, where c lacks dims of `value`.
static Factors getFactors(Value value, MulOp product) {
  if (!product)
    return {};
  if (!getMissingDims(value, product.getRhs()).empty())
    return {product.getLhs(), product.getRhs()};
  if (!getMissingDims(value, product.getLhs()).empty())
    return {product.getRhs(), product.getLhs()};
  return {};
}

/// Of (value * min(r * c, bound))^2. The bound is met nowhere as long as the
/// largest factors do not exceed it; a NaN among them does.
Value Expansion::reduceBounded(Value value, MinimumOp factor) {
  Value bound = factor.getRhs(), product = factor.getLhs();
  if (!bound.getType().isF64())
    std::swap(bound, product);
  Factors factors = getFactors(value, getExact<MulOp>(product));
  if (!bound.getType().isF64() || !factors.column ||
      !isShaped(factors.row.getType()) || !isNonNegative(factors.row) ||
      !isNonNegative(factors.column))
    return {};
  Value byRow = MulOp::create(b, loc, value, factors.row);
  Value unbounded = reduceByColumn(byRow, factors.column);
  auto largest = [&](Value of) -> Value {
    return AmaxOp::create(b, loc, of, ArrayAttr(), ArrayAttr(), Value());
  };
  Value mostRow = largest(factors.row), mostColumn = largest(factors.column);
  Value most = MulOp::create(b, loc, mostRow, mostColumn);
  Value flag = CompareOp::create(b, loc, Predicate::LE, most, bound);
  Value bounded = reduce(reduction.getInput());
  return SelectOp::create(b, loc, flag, unbounded, bounded);
}

Value Expansion::run() {
  auto square = getExact<MulOp>(reduction.getInput());
  if (!square || square.getLhs() != square.getRhs())
    return {};
  auto product = getExact<MulOp>(square.getLhs());
  if (!product)
    return {};
  for (auto [value, factor] : {std::pair(product.getLhs(), product.getRhs()),
                               std::pair(product.getRhs(), product.getLhs())}) {
    if (value.getType() != product.getType())
      continue;
    if (!getMissingDims(value, factor).empty())
      return reduceByColumn(value, factor);
    if (auto bounded = getExact<MinimumOp>(factor))
      if (Value result = reduceBounded(value, bounded))
        return result;
  }
  return {};
}

Value mlir::step::expandReassociable(OpBuilder &builder,
                                     ReductionOpInterface reduction) {
  return Expansion(builder, reduction).run();
}
