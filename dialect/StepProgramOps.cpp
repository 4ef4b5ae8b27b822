//===- StepProgramOps.cpp - programs, phases and memory by address -----===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/Step.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace mlir::step;

static YieldOp getYield(Region &body) {
  if (body.front().empty())
    return {};
  return dyn_cast<YieldOp>(body.front().back());
}

/// Bodies of phases compute and do nothing else. Powers, which are
/// loops, are for scalar phases.
static LogicalResult verifyPureBody(Region &body, bool allowsPowers) {
  for (Operation &op : body.front().without_terminator()) {
    bool allowed = isa_and_nonnull<arith::ArithDialect, math::MathDialect>(
                       op.getDialect()) ||
                   (allowsPowers && isa<PowiOp, PowOp>(op));
    if (!allowed || !isMemoryEffectFree(&op))
      return op.emitOpError("is not allowed in a phase, only arith and math "
                            "without side effects");
  }
  return success();
}

//===----------------------------------------------------------------------===//
// ProgramOp
//===----------------------------------------------------------------------===//

ScalarPhaseOp ProgramOp::getScalarPhase() {
  return cast<ScalarPhaseOp>(getBody().front().front());
}

/// Each operand of the phase is one of the program's, in the same storage.
static LogicalResult verifyOperands(ProgramOp program, PhaseOp phase) {
  for (auto operand : phase.getOperands().getAsRange<OperandAttr>()) {
    bool known =
        llvm::any_of(program.getOperands().getAsRange<OperandAttr>(),
                     [&](OperandAttr other) {
                       return other.getKind() == operand.getKind() &&
                              other.getName() == operand.getName() &&
                              other.getStorage() == operand.getStorage() &&
                              other.getShape() == operand.getShape();
                     });
    if (!known)
      return phase.emitOpError()
             << "works on '" << operand.getName().getValue()
             << "', which the program does not have in that storage and shape";
  }
  return success();
}

LogicalResult ProgramOp::verifyRegions() {
  if (failed(verifyName(*this, "program", getSymName())))
    return failure();
  Block &block = getBody().front();
  if (block.empty() || !isa<ScalarPhaseOp>(block.front()))
    return emitOpError("does not begin with a scalar phase");
  if (llvm::hasSingleElement(block))
    return emitOpError("has no phase");
  ScalarPhaseOp scalars = getScalarPhase();
  auto hypers =
      cast<OptimizerOp>((*this)->getParentOp()).getBody().getOps<HyperOp>();
  int64_t numHypers = std::distance(hypers.begin(), hypers.end());
  if (scalars.getNumHypers() != numHypers)
    return scalars.emitOpError()
           << "takes " << scalars.getNumHypers()
           << " hyper-parameters; the optimizer has " << numHypers;
  int64_t slots = scalars.getNumSlots();
  for (Operation &op : llvm::drop_begin(block)) {
    auto phase = dyn_cast<PhaseOp>(op);
    if (!phase)
      return op.emitOpError("is not allowed in a program, only phases");
    if (int64_t(phase.getNumSlots()) != slots)
      return phase.emitOpError() << "has " << phase.getNumSlots()
                                 << " slots; the scalar phase has " << slots;
    if (failed(verifyOperands(*this, phase)))
      return failure();
  }
  return success();
}

//===----------------------------------------------------------------------===//
// ScalarPhaseOp
//===----------------------------------------------------------------------===//

int64_t ScalarPhaseOp::getNumSlots() {
  return getYield(getBody()).getValues().size();
}
int64_t ScalarPhaseOp::getNumHypers() {
  return getBody().getNumArguments() - 2;
}

void ScalarPhaseOp::getAsmBlockArgumentNames(Region &region,
                                             OpAsmSetValueNameFn setName) {
  SmallVector<StringRef> names;
  if (auto optimizer = (*this)->getParentOfType<OptimizerOp>())
    for (auto hyper : optimizer.getBody().getOps<HyperOp>())
      names.push_back(hyper.getName());
  names.append({"count", "fresh"});
  for (auto [argument, name] : llvm::zip(region.getArguments(), names))
    setName(argument, name);
}

LogicalResult ScalarPhaseOp::verifyRegions() {
  if (failed(verifyName(*this, "phase", getSymName())))
    return failure();
  if (!getYield(getBody()))
    return emitOpError("does not end in 'step.yield'");
  TypeRange types = getBody().getArgumentTypes();
  if (types.size() < 2 || !types.back().isInteger(1) ||
      !types.drop_back().back().isInteger(64) ||
      !llvm::all_of(types.drop_back(2), [](Type type) { return type.isF64(); }))
    return emitOpError("takes other arguments than f64 hyper-parameters, an "
                       "i64 count and an i1 fresh");
  for (Type type : getYield(getBody()).getValues().getTypes())
    if (!type.isF64())
      return emitOpError() << "yields " << type << " for a slot, which is f64";
  return verifyPureBody(getBody(), /*allowsPowers=*/true);
}

//===----------------------------------------------------------------------===//
// PhaseOp
//===----------------------------------------------------------------------===//

void PhaseOp::getAsmBlockArgumentNames(Region &region,
                                       OpAsmSetValueNameFn setName) {
  SmallVector<StringRef> names(
      std::min<uint64_t>(getNumSlots(), region.getNumArguments()), "slot");
  for (auto operand : getOperands().getAsRange<OperandAttr>())
    if (operand.getReads())
      names.push_back(operand.getName());
  for (auto [argument, name] : llvm::zip(region.getArguments(), names))
    setName(argument, name);
}

LogicalResult PhaseOp::verifyRegions() {
  if (failed(verifyName(*this, "phase", getSymName())))
    return failure();
  YieldOp yield = getYield(getBody());
  if (!yield)
    return emitOpError("does not end in 'step.yield'");
  int64_t numSlots = getNumSlots();
  if (numSlots < 0 || numSlots > getBody().getNumArguments())
    return emitOpError() << "has " << numSlots << " slots and "
                         << getBody().getNumArguments() << " arguments";
  SmallVector<Type> arguments(numSlots, Float64Type::get(getContext()));
  SmallVector<Type> results;
  for (auto operand : getOperands().getAsRange<OperandAttr>()) {
    if (operand.getReads())
      arguments.push_back(operand.getStorage());
    if (operand.getWrites())
      results.push_back(operand.getStorage());
  }
  if (TypeRange(arguments) != getBody().getArgumentTypes())
    return emitOpError() << "takes " << getBody().getArgumentTypes()
                         << "; slots and operands give " << arguments;
  if (TypeRange(results) != TypeRange(yield.getValues().getTypes()))
    return emitOpError() << "yields " << yield.getValues().getTypes()
                         << "; operands give " << results;
  return verifyPureBody(getBody(), /*allowsPowers=*/false);
}

//===----------------------------------------------------------------------===//
// ViewOp
//===----------------------------------------------------------------------===//

LogicalResult ViewOp::verify() {
  auto type = cast<MemRefType>(getResult().getType());
  if (type.getRank() != 1 || !type.isDynamicDim(0) ||
      !type.getLayout().isIdentity())
    return emitOpError() << "makes " << type
                         << ", which is not a one-dimensional contiguous "
                            "memref of dynamic extent";
  return success();
}
