//===- FinishResults.cpp - what a finish combines, and where it goes -----===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/lower/FinishResults.h"

#include "passes/lower/Combiners.h"
#include "passes/schedule/Schedule.h"
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

static Type getParamType(Operation *op) {
  return cast<ProgramOp>(op->getParentOp()).getParam().getType();
}

static ShareType getShareType(ReceiveOp receive) {
  return cast<ShareType>(receive.getShares().front().getType());
}

Space mlir::step::getSpace(CombineOp combine) {
  return getSpaceOf(getParamType(combine),
                    combine.getPartial().getType().getShape());
}
Level mlir::step::getLevel(CombineOp combine) {
  return getLevel(getParamType(combine),
                  combine.getPartial().getType().getKeptShape());
}
Space mlir::step::getSpace(ReceiveOp receive) {
  return getSpaceOf(getParamType(receive), getShareType(receive).getShape());
}
Level mlir::step::getLevel(ReceiveOp receive) {
  return getLevel(getParamType(receive), getShareType(receive).getKeptShape());
}

/// A mean is of all elements, wherever they lie.
template <typename OpT>
static Destination getDestinationOf(const Words &w, OpT op, Combiner combiner,
                                    const Extents &in) {
  Destination to{combiner, op.getResult(), Value()};
  if (!op.getMean())
    return to;
  switch (getLevel(op)) {
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
  return getDestinationOf(w, combine,
                          combine.getPartial().getType().getCombiner(), in);
}

Destination mlir::step::getDestination(const Words &w, ReceiveOp receive,
                                       const Extents &in) {
  return getDestinationOf(w, receive, getShareType(receive).getCombiner(), in);
}

Value mlir::step::loadReceived(const Words &w, const TileRow &row,
                               ReceiveOp receive, Value index) {
  SmallVector<Value> addresses;
  for (Value share : receive.getShares())
    addresses.push_back(row.getAddress(share));
  return emitReceived(w, getShareType(receive).getCombiner(), addresses, index);
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

void mlir::step::storeResult(const Words &w, const TileRow &row,
                             const Destination &to, Value sum, Value index) {
  if (isa<ShareType>(to.result.getType())) {
    Value sent = emitSent(w, to.combiner, sum);
    w.store(sent, w.view(row.getAddress(to.result), sent.getType()),
            w.toIndex(index));
    return;
  }
  if (to.divisor) {
    Value number =
        arith::UIToFPOp::create(w.b, w.loc, w.b.getF64Type(), to.divisor);
    sum = arith::DivFOp::create(w.b, w.loc, sum, number);
  }
  auto buffer = dyn_cast<BufferType>(to.result.getType());
  if (!buffer)
    return row.storeSlot(*row.storage.getTensorSlot(to.result), sum);
  if (!buffer.getElement().isF64())
    sum = arith::TruncFOp::create(w.b, w.loc, buffer.getElement(), sum);
  w.store(sum, w.view(row.getAddress(to.result), sum.getType()),
          w.toIndex(index));
}

bool mlir::step::isScalarOfFinish(Operation *op) {
  return isTensorScalar(op) || isa<CarryOp, OwnOp>(op);
}

void mlir::step::emitTensorScalars(const Words &w, const TileRow &row,
                                   ArrayRef<Operation *> ops) {
  IRMapping mapping;
  auto getScalar = [&](Value value) {
    if (!mapping.contains(value))
      mapping.map(value, row.getScalar(value));
    return mapping.lookup(value);
  };
  auto store = [&](Value scalar, Value value) {
    if (std::optional<int64_t> slot = row.storage.getTensorSlot(scalar))
      row.storeSlot(*slot, emitSlot(w, value));
  };
  for (Operation *op : ops) {
    if (auto carry = dyn_cast<CarryOp>(op)) {
      store(carry.getCarried(), getScalar(carry.getValue()));
      continue;
    }
    if (auto own = dyn_cast<OwnOp>(op)) {
      mapping.map(own.getResult(), getScalar(own.getScalar()));
      store(own.getResult(), mapping.lookup(own.getResult()));
      continue;
    }
    llvm::for_each(op->getOperands(), getScalar);
    w.b.clone(*op, mapping);
    for (Value result : op->getResults())
      store(result, mapping.lookup(result));
  }
}
