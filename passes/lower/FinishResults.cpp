//===- FinishResults.cpp - what a finish combines, and where it goes -----===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/lower/FinishResults.h"

#include "passes/lower/Combiners.h"
#include "stepc/kernel_abi.h"

#include "mlir/IR/IRMapping.h"

using namespace mlir;
using namespace mlir::step;

Extents mlir::step::getExtents(const Words &w, const TileRow &row,
                               Space space) {
  Value one = w.constantWord(1);
  switch (space) {
  case Space::Rows:
    return {row.B,      one, row.N,     w.ceilDiv(row.N, STEPC_LEAF),
            row.wholeB, one, row.wholeN};
  case Space::Columns:
    return {row.B, one, row.M, row.leaves, row.wholeB, one, row.wholeM};
  case Space::Items:
    return {one, one, row.B,     w.ceilDiv(row.B, STEPC_LEAF),
            one, one, row.wholeB};
  default:
    return {row.B,      row.N,      row.M,     row.leaves,
            row.wholeB, row.wholeN, row.wholeM};
  }
}

/// A mean is of all elements, wherever they lie.
template <typename OpT>
static Destination getDestinationOf(const Words &w, OpT op, const Extents &in) {
  Destination to;
  to.combiner = op.getCombiner();
  to.temp = op.getTemp();
  to.slot = op.getSlot();
  if constexpr (std::is_same_v<OpT, CombineOp>)
    to.exchange = op.getExchange();
  if (!op.getMean())
    return to;
  switch (op.getLevel()) {
  case Level::Rows:
    to.divisor = in.wholeColumns;
    break;
  case Level::Columns:
    to.divisor = in.wholeRows;
    break;
  case Level::Items:
    to.divisor = w.mul(in.wholeRows, in.wholeColumns);
    break;
  case Level::Tensor:
    to.divisor = w.mul(in.wholeItems, w.mul(in.wholeRows, in.wholeColumns));
    break;
  }
  return to;
}

Destination mlir::step::getDestination(const Words &w, CombineOp combine,
                                       const Extents &in) {
  return getDestinationOf(w, combine, in);
}

Destination mlir::step::getDestination(const Words &w, ReceiveOp receive,
                                       const Extents &in) {
  return getDestinationOf(w, receive, in);
}

Value mlir::step::loadReceived(const Words &w, const TileRow &row,
                               ReceiveOp receive, Value index) {
  SmallVector<Value> addresses;
  for (StringRef source : receive.getSources())
    addresses.push_back(row.getBuffer(source));
  return emitReceived(w, receive.getCombiner(), addresses, index);
}

Value mlir::step::countResults(const Words &w, Level level, const Extents &in) {
  switch (level) {
  case Level::Rows:
    return w.mul(in.items, in.rows);
  case Level::Columns:
    return w.mul(in.items, in.columns);
  case Level::Items:
    return in.items;
  case Level::Tensor:
    break;
  }
  return w.constantWord(1);
}

void mlir::step::storeResult(const Words &w, ProgramOp program,
                             const TileRow &row, const Destination &to,
                             Value sum, Value index) {
  if (to.exchange) {
    Value sent = emitSent(w, to.combiner, sum);
    w.store(sent, w.view(row.getBuffer(*to.exchange), sent.getType()),
            w.toIndex(index));
    return;
  }
  if (to.divisor) {
    Value number =
        arith::UIToFPOp::create(w.b, w.loc, w.b.getF64Type(), to.divisor);
    sum = arith::DivFOp::create(w.b, w.loc, sum, number);
  }
  Type compute = program.getVariant().getCompute();
  if (to.temp && !compute.isF64())
    sum = arith::TruncFOp::create(w.b, w.loc, compute, sum);
  Value address = to.temp ? row.getBuffer(*to.temp) : row.tensorSlots;
  if (to.slot)
    index = w.constantWord(*to.slot);
  w.store(sum, w.view(address, sum.getType()), w.toIndex(index));
}

void mlir::step::emitTensorScalars(const Words &w, const TileRow &row,
                                   TensorScalarsOp scalars) {
  Type f64 = w.b.getF64Type();
  Value shared = w.view(row.scalars, f64), own = w.view(row.tensorSlots, f64);
  Block &body = scalars.getBody().front();
  IRMapping mapping;
  int64_t numSlots = scalars.getNumSlots();
  for (BlockArgument argument : body.getArguments()) {
    if (argument.use_empty())
      continue;
    int64_t slot = argument.getArgNumber();
    mapping.map(argument, slot < numSlots ? w.load(shared, slot)
                                          : w.load(own, slot - numSlots));
  }
  for (Operation &op : body.without_terminator())
    w.b.clone(op, mapping);
  for (auto [slot, value] :
       llvm::zip(scalars.getWrites(), body.getTerminator()->getOperands()))
    w.store(mapping.lookup(value), own, w.constant(slot));
}
