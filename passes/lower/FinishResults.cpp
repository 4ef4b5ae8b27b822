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

static ShareType getShareType(ReceiveOp receive) {
  return cast<ShareType>(receive.getShares().front().getType());
}

ReductionDims mlir::step::getReductionDims(CombineOp combine) {
  PartialType type = combine.getPartial().getType();
  return {getParamDims(combine), type.getShape(), type.getKeptShape()};
}

ReductionDims mlir::step::getReductionDims(ReceiveOp receive) {
  ShareType type = getShareType(receive);
  return {getParamDims(receive), type.getShape(), type.getKeptShape()};
}

/// A mean is of all elements, wherever they lie.
template <typename OpT>
static Destination getDestinationOf(const Words &w, const TileRow &row, OpT op,
                                    Combiner combiner) {
  Destination to{combiner, op.getResult(), Value()};
  if (!op.getMean())
    return to;
  ReductionDims in = getReductionDims(op);
  Extents whole = row.getWhole(in.names);
  for (unsigned position : in.reduced.getPositions()) {
    Value extent = whole[position];
    to.divisor = to.divisor ? w.mul(to.divisor, extent) : extent;
  }
  return to;
}

Destination mlir::step::getDestination(const Words &w, const TileRow &row,
                                       CombineOp combine) {
  return getDestinationOf(w, row, combine,
                          combine.getPartial().getType().getCombiner());
}

Destination mlir::step::getDestination(const Words &w, const TileRow &row,
                                       ReceiveOp receive) {
  return getDestinationOf(w, row, receive, getShareType(receive).getCombiner());
}

Value mlir::step::loadReceived(const Words &w, const TileRow &row,
                               ReceiveOp receive, Value index) {
  SmallVector<Value> addresses;
  for (Value share : receive.getShares())
    addresses.push_back(row.getAddress(share));
  return emitReceived(w, getShareType(receive).getCombiner(), addresses, index);
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
  sum = w.narrow(sum, buffer.getElement());
  w.store(sum, w.view(row.getAddress(to.result), sum.getType()),
          w.toIndex(index));
}

bool mlir::step::isScalarOfFinish(Operation *op) {
  return isTensorScalar(op) || isa<CarryOp, OwnOp, ExtentOp>(op);
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
    if (auto extent = dyn_cast<ExtentOp>(op)) {
      Value number = row.getWhole(extent.getDimAttr())[0];
      Value scalar =
          arith::UIToFPOp::create(w.b, w.loc, w.b.getF64Type(), number);
      mapping.map(extent.getResult(), scalar);
      store(extent.getResult(), scalar);
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
