//===- StepRegions.cpp - what is done again, or in some steps -------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/Sources.h"
#include "dialect/StepParsers.h"

using namespace mlir;
using namespace mlir::step;

LogicalResult mlir::step::verifyEndsInYield(Operation *op) {
  Block &body = op->getRegion(0).front();
  if (body.empty() || !isa<YieldOp>(body.back()))
    return op->emitOpError("does not end in 'step.yield'");
  return success();
}

LogicalResult mlir::step::verifyComputes(Operation *owner) {
  StringRef name = owner->getName().getStringRef();
  for (Operation &op : owner->getRegion(0).front().without_terminator()) {
    bool computes = isValueOp(&op) && isSourceOp(&op);
    if (!computes && !isa<CallOp, RepeatOp>(op))
      return op.emitOpError()
             << "is not allowed in '" << name
             << "', only operations that compute a value, calls and "
                "repetitions";
    auto reduction = dyn_cast<ReductionOpInterface>(op);
    if (reduction && reduction.getReassociable())
      return op.emitOpError() << "is 'reassociable' in '" << name
                              << "', which is for what a rule itself does";
  }
  return success();
}

/// A body that makes the results.
template <typename OpT>
static LogicalResult verifyBody(OpT owner) {
  if (failed(verifyComputes(owner)))
    return failure();
  TypeRange types = owner.getResultTypes();
  TypeRange yielded = owner.getYield().getValues().getTypes();
  if (types.empty())
    return owner.emitOpError("gives no value");
  if (!llvm::equal(yielded, types))
    return owner.emitOpError()
           << "yields (" << yielded << ") for (" << types << ")";
  return success();
}

//===----------------------------------------------------------------------===//
// step.repeat
//===----------------------------------------------------------------------===//

/// `step.repeat 5 (%x: [n, m] = %x0) { ... }`
ParseResult RepeatOp::parse(OpAsmParser &parser, OperationState &result) {
  int64_t times = 0;
  SmallVector<OpAsmParser::Argument> arguments;
  SmallVector<OpAsmParser::UnresolvedOperand> inits;
  auto parseValue = [&] {
    OpAsmParser::Argument &argument = arguments.emplace_back();
    return failure(parser.parseArgument(argument) ||
                   parser.parseOptionalLocationSpecifier(argument.sourceLoc) ||
                   parser.parseColon() || parseShort(parser, argument.type) ||
                   parser.parseEqual() ||
                   parser.parseOperand(inits.emplace_back()));
  };
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseInteger(times) ||
      parser.parseCommaSeparatedList(AsmParser::Delimiter::Paren, parseValue) ||
      parser.parseOptionalAttrDictWithKeyword(result.attributes))
    return failure();
  result.addAttribute(getTimesAttrName(result.name),
                      parser.getBuilder().getI64IntegerAttr(times));
  for (const OpAsmParser::Argument &argument : arguments)
    result.addTypes(argument.type);
  return failure(
      parser.resolveOperands(inits, result.types, loc, result.operands) ||
      parseBody(parser, *result.addRegion(), arguments));
}

void RepeatOp::print(OpAsmPrinter &printer) {
  printer << " " << getTimes() << " (";
  llvm::interleaveComma(llvm::zip(getBody().getArguments(), getInits()),
                        printer, [&](auto pair) {
                          auto [argument, init] = pair;
                          printer.printRegionArgument(argument, {},
                                                      /*omitType=*/true);
                          printer << ": ";
                          printShort(printer, argument.getType());
                          printer << " = " << init;
                        });
  printer << ")";
  printer.printOptionalAttrDictWithKeyword((*this)->getAttrs(),
                                           {getTimesAttrName()});
  printer << " ";
  printer.printRegion(getBody(), /*printEntryBlockArgs=*/false);
}

LogicalResult RepeatOp::verifyRegions() {
  TypeRange arguments = getBody().getArgumentTypes();
  if (!llvm::equal(getInits().getTypes(), arguments) ||
      !llvm::equal(getResultTypes(), arguments))
    return emitOpError() << "makes (" << getResultTypes() << ") of ("
                         << getInits().getTypes() << "), and its body takes ("
                         << arguments << ")";
  return verifyBody(*this);
}

//===----------------------------------------------------------------------===//
// step.when
//===----------------------------------------------------------------------===//

/// `step.when %due, %old : [n, n] { ... }`
ParseResult WhenOp::parse(OpAsmParser &parser, OperationState &result) {
  OpAsmParser::UnresolvedOperand condition;
  SmallVector<OpAsmParser::UnresolvedOperand> old;
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseOperand(condition) || parser.parseComma() ||
      parser.parseOperandList(old) || parser.parseColon() ||
      parser.parseCommaSeparatedList(
          [&] { return parseShort(parser, result.types.emplace_back()); }) ||
      parser.parseOptionalAttrDictWithKeyword(result.attributes))
    return failure();
  return failure(
      parser.resolveOperand(condition, parser.getBuilder().getI1Type(),
                            result.operands) ||
      parser.resolveOperands(old, result.types, loc, result.operands) ||
      parseBody(parser, *result.addRegion()));
}

void WhenOp::print(OpAsmPrinter &printer) {
  printer << " " << getCondition() << ", " << getOld() << " : ";
  llvm::interleaveComma(getOld().getTypes(), printer,
                        [&](Type type) { printShort(printer, type); });
  printer.printOptionalAttrDictWithKeyword((*this)->getAttrs());
  printer << " ";
  printer.printRegion(getBody(), /*printEntryBlockArgs=*/false);
}

/// Whether the scalar is known before the step, for all tensors of a group and
/// count: nothing of a tensor or a round goes into it.
bool mlir::step::isKnownBeforeStep(Value scalar) {
  auto enter = [](Value value) {
    if (isShaped(value.getType()))
      return Follow::Stop;
    Operation *op = value.getDefiningOp();
    // The count, and fresh flags.
    if (!op)
      return isa<RuleOp>(value.getParentBlock()->getParentOp())
                 ? Follow::Nothing
                 : Follow::Stop;
    if (isa<HyperOp, OptionOp, ConstantOp>(op))
      return Follow::Nothing;
    // What a definition reads beside its arguments is known, too.
    if (isa<CallOp>(op))
      return Follow::Operands;
    return !isValueOp(op) || isa<ReductionOpInterface, ExtentOp, CarriedOp>(op)
               ? Follow::Stop
               : Follow::Operands;
  };
  return walkSources(scalar, enter, [](Operation *) {});
}

LogicalResult WhenOp::verifyRegions() {
  if (!isKnownBeforeStep(getCondition()))
    return emitOpError("has a condition that is made of more than counts, "
                       "fresh flags, hyper-parameters, options and constants");
  if (!llvm::equal(getResultTypes(), getOld().getTypes()))
    return emitOpError() << "makes (" << getResultTypes() << ") in place of ("
                         << getOld().getTypes() << ")";
  if (getBody().getNumArguments() != 0)
    return emitOpError() << "has a body that takes "
                         << getBody().getNumArguments() << " arguments";
  return verifyBody(*this);
}
