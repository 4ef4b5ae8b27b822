//===- StepProgramMatrices.cpp - matrices of programs ---------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a program's operations on whole matrices say of themselves.
//
//===----------------------------------------------------------------------===//
#include "dialect/Step.h"

using namespace mlir;
using namespace mlir::step;

/// Of a result of the program's compute type, made of floats.
static LogicalResult verifyMatrices(Operation *op, ValueRange operands,
                                    Type result) {
  Type compute = cast<ProgramOp>(op->getParentOp()).getVariant().getCompute();
  if (cast<BufferType>(result).getElement() != compute)
    return op->emitOpError()
           << "makes " << result << " in a program of " << compute;
  for (Value operand : operands)
    if (!isa<FloatType>(cast<BufferType>(operand.getType()).getElement()))
      return op->emitOpError()
             << "takes " << operand.getType() << ", which has no floats";
  for (Type type : operands.getTypes())
    if (getDims(type).size() < 2)
      return op->emitOpError()
             << "takes " << type << ", which has no two dims of a matrix";
  return success();
}

/// The dims of a buffer as it is read.
static SmallVector<StringAttr> getMatrixDims(Value buffer, bool transposed) {
  SmallVector<StringAttr> dims(getDims(buffer.getType()));
  if (transposed)
    std::swap(dims[dims.size() - 1], dims[dims.size() - 2]);
  return dims;
}

LogicalResult ProductOp::verify() {
  if (failed(verifyMatrices(*this, {getLhs(), getRhs()}, getType())))
    return failure();
  SmallVector<StringAttr> lhs = getMatrixDims(getLhs(), getLhsTransposed());
  SmallVector<StringAttr> rhs = getMatrixDims(getRhs(), getRhsTransposed());
  SmallVector<StringAttr> made(lhs);
  made.back() = rhs.back();
  bool fits = lhs.size() == rhs.size() && lhs.back() == rhs[rhs.size() - 2] &&
              ArrayRef(lhs).drop_back(2) == ArrayRef(rhs).drop_back(2) &&
              ArrayRef(made) == getDims(getType());
  if (!fits)
    return emitOpError() << "makes " << getType() << " of "
                         << getLhs().getType() << " and " << getRhs().getType();
  if (getSymmetric() && made.back() != made[made.size() - 2])
    return emitOpError() << "makes " << getType()
                         << ", which cannot be symmetric";
  if (getWide() && getRounded())
    return emitOpError("is wide and rounded");
  return success();
}

LogicalResult TransposedOp::verify() {
  if (failed(verifyMatrices(*this, getOperand(), getType())))
    return failure();
  if (ArrayRef(getMatrixDims(getOperand(), true)) != getDims(getType()))
    return emitOpError() << "makes " << getType() << " of "
                         << getOperand().getType();
  return success();
}

/// Whether both have the same dims, but for the last.
static bool isBesideLast(Type type, Type other) {
  return getDims(type).drop_back() == getDims(other).drop_back();
}

LogicalResult LeadingOp::verify() {
  if (failed(verifyMatrices(*this, getOperand(), getType())))
    return failure();
  if (getDims(getType()).empty() ||
      !isBesideLast(getType(), getOperand().getType()))
    return emitOpError() << "makes " << getType() << " of "
                         << getOperand().getType();
  return success();
}

/// The dims of matrices with as many rows as columns, by their names; others
/// are refused.
static LogicalResult verifySquare(Operation *op, Type type) {
  ArrayRef<StringAttr> dims = getDims(type);
  if (dims.back() == dims[dims.size() - 2])
    return success();
  return op->emitOpError() << "takes " << type << ", which is not square";
}

/// Dims with 1 for the rows.
static SmallVector<StringAttr> getRowDims(Type type) {
  SmallVector<StringAttr> dims(getDims(type));
  dims[dims.size() - 2] = StringAttr::get(type.getContext(), "1");
  return dims;
}

LogicalResult DiagonalsOp::verify() {
  Type type = getOperand().getType();
  if (failed(verifyMatrices(*this, getOperand(), getType())) ||
      failed(verifySquare(*this, type)))
    return failure();
  if (getDims(getType()) != ArrayRef(getRowDims(type)))
    return emitOpError() << "makes " << getType() << " of " << type;
  return success();
}

static LogicalResult verifySameDims(Operation *op, Type operand, Type result) {
  if (getDims(operand) == getDims(result))
    return success();
  return op->emitOpError() << "makes " << result << " of " << operand;
}

StringRef EigenvectorsOp::getRoutine() { return "eigenvectors"; }

LogicalResult EigenvectorsOp::verify() {
  Type type = getOperand().getType(), vectors = getResult().getType();
  if (failed(verifyMatrices(*this, getOperand(), vectors)) ||
      failed(verifySquare(*this, type)) ||
      failed(verifySameDims(*this, type, vectors)))
    return failure();
  if (!getValues())
    return success();
  Type values = getValues().getType();
  if (failed(verifyMatrices(*this, {}, values)))
    return failure();
  if (getDims(values) != ArrayRef(getRowDims(type)))
    return emitOpError() << "makes " << values << " of " << type;
  return success();
}

StringRef OrthonormalOp::getRoutine() { return "orthonormal"; }

LogicalResult OrthonormalOp::verify() {
  if (failed(verifyMatrices(*this, getOperand(), getType())))
    return failure();
  return verifySameDims(*this, getOperand().getType(), getType());
}

StringRef SortedOp::getRoutine() { return "order"; }

LogicalResult SortedOp::verify() {
  Type type = getOperand().getType(), keys = getKeys().getType();
  if (failed(verifyMatrices(*this, {getOperand(), getKeys()}, getType())))
    return failure();
  if (getDims(keys) != ArrayRef(getRowDims(type)))
    return emitOpError() << "sorts " << type << " by " << keys;
  return verifySameDims(*this, type, getType());
}

LogicalResult IndicesOp::verify() {
  ArrayRef<StringAttr> dims = getDims(getType());
  auto isOne = [](StringAttr dim) { return dim.getValue() == "1"; };
  if (dims.size() < 2 || llvm::none_of(dims.take_back(2), isOne))
    return emitOpError() << "makes " << getType()
                         << ", which is neither columns nor rows";
  return verifyMatrices(*this, {}, getType());
}

LogicalResult NormalsOp::verify() {
  auto program = cast<ProgramOp>((*this)->getParentOp());
  auto position = dyn_cast<BlockArgument>(getPosition());
  if (!position ||
      program.getRole(position.getArgNumber()).getKind() != RoleKind::Position)
    return emitOpError("takes for a position what is not the program's");
  if (getDims(getType()).size() < 2)
    return emitOpError() << "makes " << getType()
                         << ", which has no two dims of a matrix";
  return verifyMatrices(*this, {}, getType());
}
