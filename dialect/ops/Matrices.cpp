//===- Matrices.cpp - products, decompositions, extents -------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// None of them folds: what they are made of is not known while extents are not.
// What they mean is in dialect/reference/Products.cpp.

#include "dialect/Step.h"

using namespace mlir;
using namespace mlir::step;

bool mlir::step::isMatrixOp(Operation *op) {
  auto value = dyn_cast_or_null<ValueOpInterface>(op);
  return value && value.getParts().sharding == Sharding::Matrix;
}

static ValueParts getMatrixParts() {
  ValueParts parts;
  parts.sharding = Sharding::Matrix;
  return parts;
}

/// Whether there are two last dims that are dims of a matrix.
static bool isMatrix(ArrayRef<StringAttr> dims) {
  return dims.size() >= 2 && llvm::none_of(dims.take_back(2), isBatch);
}

static LogicalResult verifyMatrix(Operation *op, Type type) {
  if (isMatrix(getDims(type)))
    return success();
  return op->emitOpError() << "takes " << type
                           << ", which has no two dims of a matrix";
}

//===----------------------------------------------------------------------===//
// step.matmul
//===----------------------------------------------------------------------===//

LogicalResult MatmulOp::inferReturnTypes(MLIRContext *context,
                                         std::optional<Location>,
                                         ValueRange operands, DictionaryAttr,
                                         OpaqueProperties, RegionRange,
                                         SmallVectorImpl<Type> &results) {
  ArrayRef<StringAttr> lhs = getDims(operands[0].getType());
  ArrayRef<StringAttr> rhs = getDims(operands[1].getType());
  // What does not fit is for the verifier.
  SmallVector<StringAttr> dims(lhs);
  if (!lhs.empty() && !rhs.empty())
    dims.back() = rhs.back();
  results.push_back(SymTensorType::get(context, dims));
  return success();
}

LogicalResult MatmulOp::verify() {
  Type left = getLhs().getType(), right = getRhs().getType();
  if (failed(verifyMatrix(*this, left)) || failed(verifyMatrix(*this, right)))
    return failure();
  ArrayRef<StringAttr> lhs = getDims(left), rhs = getDims(right);
  StringAttr along = lhs.back(), own = rhs.drop_back().back();
  if (along != own)
    return emitOpError() << "multiplies " << left << " by " << right
                         << ": the columns of the one are '" << along.getValue()
                         << "', the rows of the other '" << own.getValue()
                         << "'";
  if (lhs.drop_back(2) != rhs.drop_back(2))
    return emitOpError() << "multiplies " << left << " by " << right
                         << ", which are other batches";
  if (getAccumulate() && !getAccumulate()->isF64())
    return emitOpError() << "accumulates in " << *getAccumulate()
                         << ", which is not f64";
  if (getFactors() && !getFactors()->isBF16())
    return emitOpError() << "has factors of " << *getFactors()
                         << ", which is not bf16";
  if (getFactors() && getAccumulate())
    return emitOpError() << "accumulates factors of bf16 in "
                         << *getAccumulate() << ", and not in f32";
  if (getSymmetric() && lhs.drop_back().back() != rhs.back())
    return emitOpError() << "makes " << getType()
                         << ", which cannot be symmetric: it has as many rows "
                            "as '"
                         << lhs.drop_back().back().getValue()
                         << "', and columns as '" << rhs.back().getValue()
                         << "'";
  return success();
}

ValueParts MatmulOp::getParts() { return getMatrixParts(); }

//===----------------------------------------------------------------------===//
// step.transpose
//===----------------------------------------------------------------------===//

LogicalResult TransposeOp::inferReturnTypes(MLIRContext *context,
                                            std::optional<Location>,
                                            ValueRange operands, DictionaryAttr,
                                            OpaqueProperties, RegionRange,
                                            SmallVectorImpl<Type> &results) {
  SmallVector<StringAttr> dims(getDims(operands[0].getType()));
  if (dims.size() >= 2)
    std::swap(dims[dims.size() - 1], dims[dims.size() - 2]);
  // `...b` can stand first only; what has no matrix is for the verifier.
  if (dims.size() == 2 && isBatch(dims.back()))
    std::swap(dims[0], dims[1]);
  results.push_back(SymTensorType::get(context, dims));
  return success();
}

LogicalResult TransposeOp::verify() {
  return verifyMatrix(*this, getOperand().getType());
}

ValueParts TransposeOp::getParts() { return getMatrixParts(); }

//===----------------------------------------------------------------------===//
// step.eigh
//===----------------------------------------------------------------------===//

LogicalResult EighOp::inferReturnTypes(MLIRContext *, std::optional<Location>,
                                       ValueRange operands, DictionaryAttr,
                                       OpaqueProperties, RegionRange,
                                       SmallVectorImpl<Type> &results) {
  results.push_back(operands[0].getType());
  return success();
}

/// What has as many rows as columns, by their names.
static LogicalResult verifySquare(Operation *op, Type type) {
  if (failed(verifyMatrix(op, type)))
    return failure();
  ArrayRef<StringAttr> dims = getDims(type);
  if (dims.back() != dims[dims.size() - 2])
    return op->emitOpError()
           << "takes " << type << ", whose rows are '"
           << dims[dims.size() - 2].getValue() << "' and whose columns '"
           << dims.back().getValue() << "'";
  return success();
}

LogicalResult EighOp::verify() {
  return verifySquare(*this, getOperand().getType());
}

ValueParts EighOp::getParts() { return getMatrixParts(); }

//===----------------------------------------------------------------------===//
// step.eigenvalues
//===----------------------------------------------------------------------===//

/// Dims of a row for each matrix.
static SmallVector<StringAttr> getRowDims(MLIRContext *context, Type type) {
  SmallVector<StringAttr> dims(getDims(type));
  if (dims.size() >= 2)
    dims[dims.size() - 2] = StringAttr::get(context, "1");
  return dims;
}

LogicalResult EigenvaluesOp::inferReturnTypes(MLIRContext *context,
                                              std::optional<Location>,
                                              ValueRange operands,
                                              DictionaryAttr, OpaqueProperties,
                                              RegionRange,
                                              SmallVectorImpl<Type> &results) {
  results.push_back(
      SymTensorType::get(context, getRowDims(context, operands[0].getType())));
  return success();
}

LogicalResult EigenvaluesOp::verify() {
  return verifySquare(*this, getOperand().getType());
}

ValueParts EigenvaluesOp::getParts() { return getMatrixParts(); }

/// Whether the rule's dim is no more than `other`.
static bool isAtMost(RuleOp rule, StringAttr dim, StringAttr other) {
  if (dim == other)
    return true;
  return llvm::any_of(rule.getRuleDims(), [&](const BoundDim &bound) {
    return bound.attr.getName() == dim &&
           llvm::is_contained(bound.attr.getOf(), other);
  });
}

//===----------------------------------------------------------------------===//
// step.qr
//===----------------------------------------------------------------------===//

LogicalResult QrOp::inferReturnTypes(MLIRContext *, std::optional<Location>,
                                     ValueRange operands, DictionaryAttr,
                                     OpaqueProperties, RegionRange,
                                     SmallVectorImpl<Type> &results) {
  results.push_back(operands[0].getType());
  return success();
}

/// In a definition the rule that calls it is not known: it is checked where it
/// is called.
LogicalResult QrOp::verify() {
  Type type = getOperand().getType();
  if (failed(verifyMatrix(*this, type)))
    return failure();
  ArrayRef<StringAttr> dims = getDims(type);
  auto rule = (*this)->getParentOfType<RuleOp>();
  if (rule && !isAtMost(rule, dims.back(), dims[dims.size() - 2]))
    return emitOpError() << "takes " << type
                         << ", which may have more columns than rows";
  return success();
}

ValueParts QrOp::getParts() { return getMatrixParts(); }

//===----------------------------------------------------------------------===//
// step.diagonal
//===----------------------------------------------------------------------===//

LogicalResult DiagonalOp::inferReturnTypes(MLIRContext *context,
                                           std::optional<Location>,
                                           ValueRange operands, DictionaryAttr,
                                           OpaqueProperties, RegionRange,
                                           SmallVectorImpl<Type> &results) {
  results.push_back(
      SymTensorType::get(context, getRowDims(context, operands[0].getType())));
  return success();
}

LogicalResult DiagonalOp::verify() {
  return verifySquare(*this, getOperand().getType());
}

ValueParts DiagonalOp::getParts() { return getMatrixParts(); }

//===----------------------------------------------------------------------===//
// step.sort
//===----------------------------------------------------------------------===//

LogicalResult SortOp::inferReturnTypes(MLIRContext *, std::optional<Location>,
                                       ValueRange operands, DictionaryAttr,
                                       OpaqueProperties, RegionRange,
                                       SmallVectorImpl<Type> &results) {
  results.push_back(operands[0].getType());
  return success();
}

LogicalResult SortOp::verify() {
  Type type = getOperand().getType(), keys = getKeys().getType();
  if (failed(verifyMatrix(*this, type)))
    return failure();
  if (getDims(keys) != ArrayRef(getRowDims(getContext(), type)))
    return emitOpError() << "sorts " << type << " by " << keys
                         << ", which has no key for each column";
  return success();
}

ValueParts SortOp::getParts() { return getMatrixParts(); }

//===----------------------------------------------------------------------===//
// step.first
//===----------------------------------------------------------------------===//

LogicalResult
FirstOp::inferReturnTypes(MLIRContext *context, std::optional<Location>,
                          ValueRange operands, DictionaryAttr attributes,
                          OpaqueProperties properties, RegionRange regions,
                          SmallVectorImpl<Type> &results) {
  FirstOp::Adaptor adaptor(operands, attributes, properties, regions);
  SmallVector<StringAttr> dims(getDims(operands[0].getType()));
  if (!dims.empty())
    dims.back() = adaptor.getDimAttr();
  results.push_back(SymTensorType::get(context, dims));
  return success();
}

/// In a definition the rule that calls it is not known: it is checked where it
/// is called.
LogicalResult FirstOp::verify() {
  Type type = getOperand().getType();
  if (failed(verifyMatrix(*this, type)))
    return failure();
  auto rule = (*this)->getParentOfType<RuleOp>();
  if (rule && !isAtMost(rule, getDimAttr(), getDims(type).back()))
    return emitOpError() << "takes '" << getDim() << "' columns of " << type
                         << ", which may have fewer";
  return success();
}

ValueParts FirstOp::getParts() { return getMatrixParts(); }

//===----------------------------------------------------------------------===//
// step.identity, step.index
//===----------------------------------------------------------------------===//

/// A matrix of the rule's dims. In a definition the rule that calls it is not
/// known: it is checked where it is called.
static LogicalResult verifyMade(Operation *op, Type type) {
  if (failed(verifyMatrix(op, type)))
    return failure();
  auto rule = op->getParentOfType<RuleOp>();
  for (StringAttr dim : getDims(type))
    if (rule && dim.getValue() != "1" && !rule.hasDim(dim))
      return op->emitOpError() << "makes " << type << ", but '"
                               << dim.getValue() << "' is no dim of the rule";
  return success();
}

LogicalResult IdentityOp::verify() {
  if (failed(verifyMade(*this, getType())))
    return failure();
  return verifySquare(*this, getType());
}

ValueParts IdentityOp::getParts() { return getMatrixParts(); }

LogicalResult IndexOp::verify() {
  if (failed(verifyMade(*this, getType())))
    return failure();
  if (llvm::none_of(getDims(getType()).take_back(2),
                    [](StringAttr dim) { return dim.getValue() == "1"; }))
    return emitOpError() << "makes " << getType()
                         << ", which is neither a column nor a row";
  return success();
}

ValueParts IndexOp::getParts() { return getMatrixParts(); }

//===----------------------------------------------------------------------===//
// step.random_normal
//===----------------------------------------------------------------------===//

LogicalResult RandomNormalOp::verify() {
  if (getName().empty())
    return emitOpError("has an empty name");
  return verifyMade(*this, getType());
}

ValueParts RandomNormalOp::getParts() { return getMatrixParts(); }

//===----------------------------------------------------------------------===//
// step.extent
//===----------------------------------------------------------------------===//

LogicalResult ExtentOp::verify() {
  auto rule = (*this)->getParentOfType<RuleOp>();
  auto program = dyn_cast<ProgramOp>((*this)->getParentOp());
  BlockArgument param;
  if (rule)
    param = rule.getArgumentOfKind(RoleKind::Param);
  if (program)
    param = program.getParam();
  if (!param)
    return emitOpError("stands in no rule of a param");
  bool isThere =
      rule ? rule.hasDim(getDimAttr()) : program.hasDim(getDimAttr());
  if (getDim() == "1" || !isThere)
    return emitOpError() << "asks for dim '" << getDim() << "' of a param of "
                         << param.getType();
  return success();
}

/// Read from where the tensor is described.
ValueParts ExtentOp::getParts() { return {}; }
