//===- StepReductions.cpp - step.sum, step.mean, step.amax -------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Reductions do not fold. That of a constant in a shape is not known while the
// extents are not, and the order of additions is part of what they mean.

#include "dialect/Step.h"

using namespace mlir;
using namespace mlir::step;

SmallVector<unsigned> mlir::step::getReducedPositions(Type type,
                                                      ArrayAttr over) {
  SmallVector<unsigned> positions;
  for (auto [position, dim] : llvm::enumerate(getDims(type)))
    if (!over || llvm::is_contained(over.getValue(), dim))
      positions.push_back(position);
  return positions;
}

/// The operand's dims with 1 in place of the reduced ones, or f64.
static LogicalResult inferReduction(MLIRContext *context, Type operand,
                                    ArrayAttr over,
                                    SmallVectorImpl<Type> &results) {
  if (!over) {
    results.push_back(Float64Type::get(context));
    return success();
  }
  SmallVector<StringAttr> dims(getDims(operand));
  for (unsigned position : getReducedPositions(operand, over))
    // What cannot be reduced by name is for the verifier.
    if (!isAnyRank(dims[position]) && !isBatch(dims[position]))
      dims[position] = StringAttr::get(context, "1");
  if (dims.empty())
    return failure();
  results.push_back(SymTensorType::get(context, dims));
  return success();
}

static LogicalResult verifyReduction(ReductionOpInterface op, ArrayAttr over) {
  if (!llvm::all_equal(op.getInputs().getTypes()))
    return op->emitOpError("reduces tensors of different types together: ")
           << op.getInputs().getTypes();
  if (op.getReassociable() &&
      (isa<AmaxOp>(op) || !op.isWhole() || op.getInputs().size() > 1))
    return op->emitOpError("is 'reassociable', which only a sum or a mean of "
                           "one whole tensor can be");
  if (!over)
    return success();
  if (op.getUnless())
    return op->emitOpError("reduces dims, but only the reduction of a whole "
                           "tensor can be left out by 'unless'");
  if (over.empty())
    return op->emitOpError("reduces over no dim; without 'over' it reduces the "
                           "whole tensor");
  ArrayRef<StringAttr> dims = getDims(op.getInput().getType());
  llvm::SmallPtrSet<Attribute, 4> seen;
  for (auto dim : over.getAsRange<StringAttr>()) {
    if (isAnyRank(dim) || isBatch(dim) || dim.getValue() == "1")
      return op->emitOpError() << "reduces over '" << dim.getValue()
                               << "', which is not the name of one dim";
    if (!llvm::is_contained(dims, dim))
      return op->emitOpError() << "reduces over dim '" << dim.getValue()
                               << "', which its operand does not have";
    if (!seen.insert(dim).second)
      return op->emitOpError()
             << "reduces over dim '" << dim.getValue() << "' twice";
  }
  return success();
}

/// The tree, and what an interval of a sum is, are in dialect/reference.
static ValueParts getReductionParts() {
  ValueParts parts;
  parts.sharding = Sharding::Reduction;
  return parts;
}

#define STEP_REDUCTION(OP)                                                     \
  LogicalResult OP::inferReturnTypes(                                          \
      MLIRContext *context, std::optional<Location>, ValueRange operands,      \
      DictionaryAttr attributes, OpaqueProperties properties,                  \
      RegionRange regions, SmallVectorImpl<Type> &results) {                   \
    OP::Adaptor adaptor(operands, attributes, properties, regions);            \
    if (adaptor.getInputs().empty())                                           \
      return failure();                                                        \
    return inferReduction(context, adaptor.getInputs()[0].getType(),           \
                          adaptor.getOverAttr(), results);                     \
  }                                                                            \
  LogicalResult OP::verify() { return verifyReduction(*this, getOverAttr()); } \
  ValueParts OP::getParts() { return getReductionParts(); }
STEP_REDUCTION(SumOp)
STEP_REDUCTION(MeanOp)
STEP_REDUCTION(AmaxOp)
#undef STEP_REDUCTION
