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

/// The most dims of a rule that follow from others: a row of a kernel's table
/// has so many more extents.
constexpr unsigned kMaxBoundDims = 3;

/// Bytes of a number of the type in memory.
inline int64_t getBytes(Type type) { return type.getIntOrFloatBitWidth() / 8; }

/// What passes put into rules and no source may say.
template <typename ConcreteT>
class InsertedByPasses
    : public OpTrait::TraitBase<ConcreteT, InsertedByPasses> {};

/// Operations of the language that programs hold as they are, and that a pass
/// of the lower stage expands to those of arith.
template <typename ConcreteT>
class ExpandedInBodies
    : public OpTrait::TraitBase<ConcreteT, ExpandedInBodies> {};

/// Refuses a body that does not end in step.yield.
LogicalResult verifyEndsInYield(Operation *op);

class YieldOp;

/// What has one body, of one block, that ends in step.yield.
template <typename ConcreteT>
class EndsInYield : public OpTrait::TraitBase<ConcreteT, EndsInYield> {
public:
  static LogicalResult verifyRegionTrait(Operation *op) {
    return verifyEndsInYield(op);
  }
  /// The parameter is there because operations are not yet defined here.
  template <typename OpT = YieldOp>
  OpT getYield() {
    return cast<OpT>(this->getOperation()->getRegion(0).front().back());
  }
};

namespace reference {
enum class Format;
struct Element;
struct BoundElement;
} // namespace reference

/// How an operation goes with tensors of which ranks have parts.
enum class Sharding {
  /// Each rank computes the elements that it has.
  Elementwise,
  /// A rank that has a part of what is reduced gets a part of the result, which
  /// ranks then combine.
  Reduction,
  /// A rank needs the whole of each matrix.
  Matrix,
  /// Of no tensor: every rank has the whole of it.
  Whole,
};

/// What an operation of the language is; dialect/ops/ has these of all. Where a
/// part is null there is none: reductions and products are no code of one
/// element, and what passes insert has no meaning for the interpreter, which
/// runs the source.
struct ValueParts {
  Sharding sharding = Sharding::Whole;
  /// How an explanation writes it: between operands, or before them in
  /// parentheses if it is a word.
  StringRef symbol;
  /// The name of the operation of arith or math that it becomes, where it
  /// becomes one alone.
  StringRef scalarOp;
  /// Emits what it does to one element of each operand. The result and what is
  /// not mapped of `in` are of the type `element` or i1 or i64.
  Value (*emit)(OpBuilder &, Operation *op, ValueRange in,
                Type element) = nullptr;
  /// Exact mode: the element of the result from one of each operand, which are
  /// values of the compute format.
  reference::Element (*evaluate)(Operation *op,
                                 ArrayRef<reference::Element> operands,
                                 reference::Format compute) = nullptr;
  /// Bound mode: all that the element may be.
  reference::BoundElement (*bound)(Operation *op,
                                   ArrayRef<reference::BoundElement> operands,
                                   reference::Format compute) = nullptr;
  /// Whether it jumps where an operand passes some number: then bound mode
  /// counts the elements that may lie on either side.
  bool jumps = false;
};

/// The broadcast of `types`: a tensor, or f64 if none is shaped. In bodies of
/// programs, where all are elements or vectors of them, their type.
LogicalResult inferValue(MLIRContext *context, std::optional<Location> loc,
                         TypeRange types, SmallVectorImpl<Type> &results);

/// The same of conditions: a mask, or i1 if none is shaped.
LogicalResult inferCondition(MLIRContext *context, std::optional<Location> loc,
                             TypeRange types, SmallVectorImpl<Type> &results);
} // namespace mlir::step

#define GET_TYPEDEF_CLASSES
#include "dialect/StepTypes.h.inc"

#define GET_ATTRDEF_CLASSES
#include "dialect/StepAttrs.h.inc"

#include "dialect/StepDialect.h.inc"

namespace mlir::step {
class ReturnOp;

/// A condition of a rule, and the option that belongs to it, if any.
struct RuleCondition {
  ConditionAttr attr;
  Value operand;
};

/// A dim of a rule whose extent follows from others, and the integer option
/// that belongs to it, if any.
struct BoundDim {
  BoundDimAttr attr;
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

/// The dims of a tensor, mask or buffer type; empty for any other type.
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

/// The segment of the step to which an operation of a program belongs: how many
/// rounds of exchanges stand before it.
int64_t getSegment(Operation *op);

/// The operation of a program in which the operation stands, or is.
Operation *getEntryOf(Operation *op);

/// The argument of the program, or the result, that was the buffer's memory
/// before it was written or kept.
Value getMemory(Value buffer);

/// True for operations of the language that compute one value from others.
bool isValueOp(Operation *op);

/// True for those of whole matrices: products, transposes and the like.
bool isMatrixOp(Operation *op);

/// True for a scalar that nothing of a tensor or a round goes into.
bool isKnownBeforeStep(Value scalar);

/// True for what a definition may say, as it is written or as the define stage
/// leaves it.
bool isSourceOp(Operation *op);

/// Checks what an optimizer and a fragment declare, and what goes from rules to
/// statistics and back.
LogicalResult verifyDefinition(Operation *definition);

/// Checks that the body of a definition, repetition or condition only computes
/// values.
LogicalResult verifyComputes(Operation *owner);

/// Checks that each call in an optimizer or a fragment is of what is defined
/// before it, with its types.
LogicalResult verifyCalls(Operation *definition);

/// The result of a comparison by `predicate`.
bool evaluate(Predicate predicate, double lhs, double rhs);
bool evaluate(Predicate predicate, int64_t lhs, int64_t rhs);

} // namespace mlir::step

#endif // STEPC_DIALECT_STEP_H
