//===- Calls.cpp - scalars that are written once ------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/reference/Calls.h"

using namespace mlir;
using namespace mlir::step;
using namespace mlir::step::reference;
using llvm::Error;
using llvm::Expected;

Error mlir::step::reference::evaluateCall(
    CallOp call, Frame &frame,
    llvm::function_ref<Expected<Datum>(Operation *, const Frame &)> evaluate) {
  DefineOp define = call.getDefinition();
  // The values of one call; another one of the same has others.
  Frame local;
  local.outer = &frame;
  for (auto [argument, value] :
       llvm::zip(define.getBody().getArguments(), call.getArguments()))
    local.values[argument] = frame.get(value);
  for (Operation &op : define.getBody().front().without_terminator()) {
    if (auto inner = dyn_cast<CallOp>(op)) {
      if (Error error = evaluateCall(inner, local, evaluate))
        return error;
      continue;
    }
    Expected<Datum> datum = evaluate(&op, local);
    if (!datum)
      return datum.takeError();
    local.values[op.getResult(0)] = std::move(*datum);
  }
  for (auto [result, value] :
       llvm::zip(call.getResults(), define.getYield().getValues()))
    frame.values[result] = local.get(value);
  return Error::success();
}

void mlir::step::reference::collectOperands(Block &body,
                                            SmallVectorImpl<Value> &operands) {
  for (Operation &op : body) {
    llvm::append_range(operands, op.getOperands());
    if (auto call = dyn_cast<CallOp>(op))
      collectOperands(call.getDefinition().getBody().front(), operands);
  }
}
