//===- Step.h - the step dialect ---------------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_DIALECT_STEP_H
#define STEPC_DIALECT_STEP_H

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/RegionKindInterface.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "dialect/StepEnums.h.inc"

namespace mlir::step {
/// What stands in a layout for all dims of a tensor of which ranks have ranges
/// of elements. No dim can be called so: a name has no space in it.
constexpr StringLiteral kFlatRange = "flat range";

/// What passes put into rules and no source may say.
template <typename ConcreteT>
class InsertedByPasses
    : public OpTrait::TraitBase<ConcreteT, InsertedByPasses> {};
} // namespace mlir::step

#define GET_TYPEDEF_CLASSES
#include "dialect/StepTypes.h.inc"

#define GET_ATTRDEF_CLASSES
#include "dialect/StepAttrs.h.inc"

#include "dialect/StepDialect.h.inc"

namespace mlir::step {
class ReturnOp;
class ScalarPhaseOp;

/// A condition of a rule, and the option that belongs to it, if any.
struct RuleCondition {
  ConditionAttr attr;
  Value operand;
};

/// Positions in `type` of the dims named in `over`; of all dims where `over` is
/// null.
SmallVector<unsigned> getReducedPositions(Type type, ArrayAttr over);
} // namespace mlir::step

#include "dialect/StepInterfaces.h.inc"

#define GET_OP_CLASSES
#include "dialect/Step.h.inc"

namespace mlir::step {

/// The dims of a tensor or mask type; empty for any other type.
ArrayRef<StringAttr> getDims(Type type);

/// True for the dim `*`.
bool isAnyRank(StringAttr dim);

/// True for a dim such as `...b`: any number of leading dims.
bool isBatch(StringAttr dim);

/// True for a tensor with one dim, or of any rank: `[n]`, `[*]`. Elements are
/// all that a rule knows of its shape.
bool isVector(Type type);

/// True for tensors and masks.
bool isShaped(Type type);

/// The shape that operands of these types broadcast to: dims are equal or one
/// of them is "1"; scalars go with anything. On success `dims` holds the
/// result, and is left empty when no type is shaped; `shaped` says whether one
/// is.
LogicalResult broadcastDims(TypeRange types, SmallVectorImpl<StringAttr> &dims,
                            bool &shaped);

/// Parses a dim: `*`, an integer, a name, or a name after three dots. Whether
/// it is a valid one is for the type's verifier.
ParseResult parseDim(AsmParser &parser, SmallVectorImpl<StringAttr> &dims);

/// Prints `[n, m]`, `mask[n, m]`, or the type itself.
void printShort(AsmPrinter &printer, Type type);

/// Parses what printShort prints.
ParseResult parseShort(AsmParser &parser, Type &type);

/// Prints a float so that parsing gives it back bit for bit: shortest decimal
/// form, with a point or an exponent.
void printFloat(AsmPrinter &printer, const APFloat &value);

/// A name must not be empty; every message about one reads alike.
LogicalResult verifyName(Operation *op, StringRef what, StringRef name);

/// The segment of an entry of a program; none if the operation is no entry.
std::optional<int64_t> getSegment(Operation *op);

/// How many f64 inputs a scalar phase of the optimizer's programs has:
/// hyper-parameters, persistent scalars and results of rounds.
int64_t countScalarInputs(OptimizerOp optimizer);

/// True for operations of the language that compute one value from others.
bool isValueOp(Operation *op);

/// True for what a definition may say, as it is written or as the define stage
/// leaves it.
bool isSourceOp(Operation *op);

/// Checks what an optimizer and a fragment declare, and what goes from rules to
/// statistics and back.
LogicalResult verifyDefinition(Operation *definition);

/// Checks that each call in an optimizer or a fragment is of what is defined
/// before it, with its types.
LogicalResult verifyCalls(Operation *definition);

/// The result of a comparison by `predicate`.
bool evaluate(Predicate predicate, double lhs, double rhs);
bool evaluate(Predicate predicate, int64_t lhs, int64_t rhs);

} // namespace mlir::step

#endif // STEPC_DIALECT_STEP_H
