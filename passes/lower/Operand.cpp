//===- Operand.cpp - what a traversal touches -----------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/lower/Operand.h"

#include "stepc/kernel_abi.h"

using namespace mlir;
using namespace mlir::step;

static ProgramOp getProgram(TraverseOp traverse) {
  return cast<ProgramOp>(traverse->getParentOp());
}

bool Operand::isState() const {
  auto argument = dyn_cast<BlockArgument>(getMemory(buffer));
  if (!argument)
    return false;
  auto program = cast<ProgramOp>(argument.getOwner()->getParentOp());
  return program.getRole(argument.getArgNumber()).getKind() == RoleKind::State;
}

SmallVector<Operand> mlir::step::getOperands(TraverseOp traverse) {
  ProgramOp program = getProgram(traverse);
  SmallVector<Operand> operands;
  for (BlockArgument argument : program.getOperandArguments())
    operands.push_back({argument, {}, {}});
  auto find = [&](Value buffer) -> Operand & {
    for (Operand &known : operands)
      if (getMemory(known.buffer) == getMemory(buffer))
        return known;
    return operands.emplace_back(Operand{buffer, {}, {}});
  };
  for (auto [k, buffer] : llvm::enumerate(traverse.getReads()))
    find(buffer).element = k;
  for (auto [k, buffer] : llvm::enumerate(traverse.getWrites()))
    find(buffer).yielded = k;
  unsigned next = traverse.getWrites().size();
  for (Value buffer : traverse.getMade())
    find(buffer).yielded = next++;
  if (!program.getElementwise())
    llvm::erase_if(operands, [](const Operand &operand) {
      return !operand.reads() && !operand.writes();
    });
  return operands;
}

SmallVector<Accumulator> mlir::step::getAccumulators(TraverseOp traverse) {
  SmallVector<Accumulator> accumulators;
  SmallVector<Value> partials = traverse.getPartials();
  unsigned next = traverse->getNumResults() - partials.size();
  for (Value partial : partials) {
    auto type = cast<PartialType>(partial.getType());
    ReductionDims in(getParamDims(traverse), type.getShape(),
                     type.getKeptShape());
    accumulators.push_back({partial, next++, type.getCombiner(), in.leaves});
  }
  return accumulators;
}

int64_t Accumulator::getLeafElements() const {
  switch (leaves) {
  case Leaves::Lanes:
    return STEPC_LEAF;
  case Leaves::Columns:
    return STEPC_ROW_LEAF;
  case Leaves::Elements:
    return 1;
  }
  llvm_unreachable("not a kind of leaves");
}

DimSet mlir::step::getDimSet(TraverseOp traverse) {
  return getParamDims(traverse).getSet(traverse.getOver());
}

DimSet mlir::step::getDimSet(TraverseOp traverse, const Operand &operand) {
  return getParamDims(traverse).getSet(operand.getType(), traverse.getOver());
}
