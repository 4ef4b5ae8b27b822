//===- Calls.cpp - what is written once ---------------------------------===//
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

/// What the operations of a body make, each of what stands before it.
static Error evaluateBody(Block &body, Frame &local, EvaluateOp evaluate) {
  for (Operation &op : body.without_terminator()) {
    if (auto call = dyn_cast<CallOp>(op)) {
      if (Error error = evaluateCall(call, local, evaluate))
        return error;
      continue;
    }
    if (auto repeat = dyn_cast<RepeatOp>(op)) {
      if (Error error = evaluateRepeat(repeat, local, evaluate))
        return error;
      continue;
    }
    Expected<Datum> datum = evaluate(&op, local);
    if (!datum)
      return datum.takeError();
    local.values[op.getResult(0)] = std::move(*datum);
  }
  return Error::success();
}

Error mlir::step::reference::evaluateCall(CallOp call, Frame &frame,
                                          EvaluateOp evaluate) {
  DefineOp define = call.getDefinition();
  // The values of one call; another one of the same has others.
  Frame local;
  local.outer = &frame;
  for (auto [argument, value] :
       llvm::zip(define.getBody().getArguments(), call.getArguments()))
    local.values[argument] = frame.get(value);
  if (Error error = evaluateBody(define.getBody().front(), local, evaluate))
    return error;
  for (auto [result, value] :
       llvm::zip(call.getResults(), define.getYield().getValues()))
    frame.values[result] = local.get(value);
  return Error::success();
}

Error mlir::step::reference::evaluateRepeat(RepeatOp repeat, Frame &frame,
                                            EvaluateOp evaluate) {
  SmallVector<Datum> values;
  for (Value init : repeat.getInits())
    values.push_back(frame.get(init));
  for (int64_t time = 0; time < int64_t(repeat.getTimes()); ++time) {
    Frame local;
    local.outer = &frame;
    for (auto [argument, value] :
         llvm::zip(repeat.getBody().getArguments(), values))
      local.values[argument] = value;
    if (Error error = evaluateBody(repeat.getBody().front(), local, evaluate))
      return error;
    for (auto [value, made] : llvm::zip(values, repeat.getYield().getValues()))
      value = local.get(made);
  }
  for (auto [result, value] : llvm::zip(repeat.getResults(), values))
    frame.values[result] = value;
  return Error::success();
}

void mlir::step::reference::collectOperands(Block &body,
                                            SmallVectorImpl<Value> &operands) {
  for (Operation &op : body) {
    llvm::append_range(operands, op.getOperands());
    if (auto call = dyn_cast<CallOp>(op))
      collectOperands(call.getDefinition().getBody().front(), operands);
    if (auto repeat = dyn_cast<RepeatOp>(op))
      collectOperands(repeat.getBody().front(), operands);
  }
}
