//===- StepParsers.cpp - custom syntax ---------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/StepParsers.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/SmallString.h"

#include <charconv>

using namespace mlir;
using namespace mlir::step;

//===----------------------------------------------------------------------===//
// Numbers
//===----------------------------------------------------------------------===//

void mlir::step::printFloat(AsmPrinter &printer, const APFloat &value) {
  if (!value.isFinite()) {
    // The bits, as MLIR writes non-finite values.
    SmallString<20> bits;
    value.bitcastToAPInt().toString(bits, 16, false, true);
    printer << bits;
    return;
  }
  char buffer[40];
  std::to_chars_result end =
      std::to_chars(buffer, buffer + sizeof(buffer), value.convertToDouble());
  SmallString<40> text(StringRef(buffer, end.ptr - buffer));
  // "1" and "1e-08" are not floats to MLIR's lexer; "1.0" and "1.0e-08" are.
  if (!StringRef(text).contains('.')) {
    size_t exponent = StringRef(text).find('e');
    text.insert(text.begin() + std::min(exponent, text.size()), {'.', '0'});
  }
  printer << text;
}

/// Parses a literal such as `1.0e-3`, `-0.0` or the bits `0x7FF0000000000000`.
ParseResult mlir::step::parseFloat(OpAsmParser &parser, FloatAttr &attr) {
  Attribute parsed;
  SMLoc loc = parser.getCurrentLocation();
  Type f64 = parser.getBuilder().getF64Type();
  if (parser.parseAttribute(parsed, f64))
    return failure();
  attr = dyn_cast<FloatAttr>(parsed);
  if (!attr)
    return parser.emitError(loc, "expected a floating-point number");
  return success();
}

static ParseResult parsePlainFloat(OpAsmParser &parser, FloatAttr &attr) {
  return parseFloat(parser, attr);
}
static void printPlainFloat(OpAsmPrinter &printer, Operation *,
                            FloatAttr attr) {
  printFloat(printer, attr.getValue());
}

/// `true`, `false` or a float.
static ParseResult parsePlainScalar(OpAsmParser &parser, TypedAttr &attr) {
  Builder &builder = parser.getBuilder();
  if (succeeded(parser.parseOptionalKeyword("true"))) {
    attr = builder.getBoolAttr(true);
    return success();
  }
  if (succeeded(parser.parseOptionalKeyword("false"))) {
    attr = builder.getBoolAttr(false);
    return success();
  }
  FloatAttr number;
  if (parseFloat(parser, number))
    return failure();
  attr = number;
  return success();
}
static void printPlainScalar(OpAsmPrinter &printer, Operation *,
                             TypedAttr attr) {
  if (auto number = dyn_cast<FloatAttr>(attr))
    printFloat(printer, number.getValue());
  else
    printer << (cast<BoolAttr>(attr).getValue() ? "true" : "false");
}

ParseResult mlir::step::parsePredicate(OpAsmParser &parser,
                                       PredicateAttr &attr) {
  StringRef word;
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseKeyword(&word))
    return failure();
  std::optional<Predicate> predicate = symbolizePredicate(word);
  if (!predicate)
    return parser.emitError(loc, "'")
           << word << "' is not one of lt, le, gt, ge, eq, ne";
  attr = PredicateAttr::get(parser.getContext(), *predicate);
  return success();
}
static ParseResult parsePlainPredicate(OpAsmParser &parser,
                                       PredicateAttr &attr) {
  return parsePredicate(parser, attr);
}
static void printPlainPredicate(OpAsmPrinter &printer, Operation *,
                                PredicateAttr attr) {
  printer << stringifyPredicate(attr.getValue());
}

static ParseResult parsePlainKind(OpAsmParser &parser,
                                  ReductionKindAttr &attr) {
  StringRef word;
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseKeyword(&word))
    return failure();
  std::optional<ReductionKind> kind = symbolizeReductionKind(word);
  if (!kind)
    return parser.emitError(loc, "'")
           << word << "' is not one of sum, mean, amax";
  attr = ReductionKindAttr::get(parser.getContext(), *kind);
  return success();
}
static void printPlainKind(OpAsmPrinter &printer, Operation *,
                           ReductionKindAttr attr) {
  printer << stringifyReductionKind(attr.getValue());
}

static ParseResult parsePlainScope(OpAsmParser &parser, ScopeAttr &attr) {
  StringRef word;
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseKeyword(&word))
    return failure();
  std::optional<Scope> scope = symbolizeScope(word);
  if (!scope)
    return parser.emitError(loc, "'") << word << "' is neither model nor group";
  attr = ScopeAttr::get(parser.getContext(), *scope);
  return success();
}
static void printPlainScope(OpAsmPrinter &printer, Operation *,
                            ScopeAttr attr) {
  printer << stringifyScope(attr.getValue());
}

//===----------------------------------------------------------------------===//
// Bodies
//===----------------------------------------------------------------------===//

static void printBody(OpAsmPrinter &printer, Operation *, Region &body) {
  printer.printRegion(body);
}

//===----------------------------------------------------------------------===//
// Types
//===----------------------------------------------------------------------===//

static ParseResult parseShortType(OpAsmParser &parser, Type &type) {
  return parseShort(parser, type);
}
static void printShortType(OpAsmPrinter &printer, Operation *, Type type) {
  printShort(printer, type);
}

/// Of operands that are of one type.
static ParseResult parseOneShortType(
    OpAsmParser &parser, SmallVectorImpl<Type> &types,
    const SmallVectorImpl<OpAsmParser::UnresolvedOperand> &operands) {
  Type type;
  if (operands.empty())
    return parser.emitError(parser.getNameLoc(), "reduces no tensor");
  if (parseShort(parser, type))
    return failure();
  types.assign(operands.size(), type);
  return success();
}
static void printOneShortType(OpAsmPrinter &printer, Operation *,
                              TypeRange types, OperandRange) {
  printShort(printer, types.front());
}

/// One type stands for all when they are equal.
static ParseResult parseShortTypeList(OpAsmParser &parser,
                                      ArrayRef<Type *> types) {
  SMLoc loc = parser.getCurrentLocation();
  SmallVector<Type> parsed;
  if (parser.parseCommaSeparatedList(
          [&] { return parseShort(parser, parsed.emplace_back()); }))
    return failure();
  if (parsed.size() != 1 && parsed.size() != types.size())
    return parser.emitError(loc, "expected one type for all operands, or one "
                                 "for each: ")
           << types.size() << " operands, " << parsed.size() << " types";
  for (auto [index, type] : llvm::enumerate(types))
    *type = parsed.size() == 1 ? parsed.front() : parsed[index];
  return success();
}
static void printShortTypeList(OpAsmPrinter &printer, ArrayRef<Type> types) {
  if (llvm::all_equal(types))
    types = types.take_front();
  llvm::interleaveComma(types, printer,
                        [&](Type type) { printShort(printer, type); });
}

static ParseResult parseShortTypes(OpAsmParser &parser, Type &a, Type &b) {
  return parseShortTypeList(parser, {&a, &b});
}
static ParseResult parseShortTypes(OpAsmParser &parser, Type &a, Type &b,
                                   Type &c) {
  return parseShortTypeList(parser, {&a, &b, &c});
}
static void printShortTypes(OpAsmPrinter &printer, Operation *, Type a,
                            Type b) {
  printShortTypeList(printer, {a, b});
}
static void printShortTypes(OpAsmPrinter &printer, Operation *, Type a, Type b,
                            Type c) {
  printShortTypeList(printer, {a, b, c});
}

static ParseResult parseEachShortType(OpAsmParser &parser,
                                      SmallVectorImpl<Type> &types) {
  return parser.parseCommaSeparatedList(
      [&] { return parseShort(parser, types.emplace_back()); });
}
static void printEachShortType(OpAsmPrinter &printer, Operation *,
                               TypeRange types) {
  llvm::interleaveComma(types, printer,
                        [&](Type type) { printShort(printer, type); });
}

/// Of a call: `(f64, [n, m]) -> [n, m]`, results in parentheses where there are
/// several.
static ParseResult parseShortSignature(OpAsmParser &parser,
                                       SmallVectorImpl<Type> &arguments,
                                       SmallVectorImpl<Type> &results) {
  auto parseInto = [&](SmallVectorImpl<Type> &types) {
    return [&] { return parseShort(parser, types.emplace_back()); };
  };
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Paren,
                                     parseInto(arguments)) ||
      parser.parseArrow())
    return failure();
  if (failed(parser.parseOptionalLParen()))
    return parseShort(parser, results.emplace_back());
  return failure(parser.parseCommaSeparatedList(parseInto(results)) ||
                 parser.parseRParen());
}
static void printShortSignature(OpAsmPrinter &printer, Operation *,
                                TypeRange arguments, TypeRange results) {
  auto print = [&](Type type) { printShort(printer, type); };
  printer << "(";
  llvm::interleaveComma(arguments, printer, print);
  printer << ") -> ";
  if (results.size() == 1)
    return print(results.front());
  printer << "(";
  llvm::interleaveComma(results, printer, print);
  printer << ")";
}

/// Nothing where both are f64.
static ParseResult parseTypesUnlessScalar(OpAsmParser &parser, Type &a,
                                          Type &b) {
  if (succeeded(parser.parseOptionalColon()))
    return parseShortTypeList(parser, {&a, &b});
  a = b = parser.getBuilder().getF64Type();
  return success();
}
static void printTypesUnlessScalar(OpAsmPrinter &printer, Operation *, Type a,
                                   Type b) {
  if (a.isF64() && b.isF64())
    return;
  printer << " : ";
  printShortTypeList(printer, {a, b});
}

/// Of a select: `mask[n], [n], f64`, `[n], f64` where the condition is an i1,
/// and one type for two values that are of one.
static ParseResult parseSelectTypes(OpAsmParser &parser, Type &condition,
                                    Type &ifTrue, Type &ifFalse) {
  SMLoc loc = parser.getCurrentLocation();
  if (parseShort(parser, ifTrue))
    return failure();
  condition = parser.getBuilder().getI1Type();
  if (ifTrue == condition)
    return parser.emitError(loc,
                            "an i1 is a condition, whose type is left out");
  if (isa<SymMaskType>(ifTrue)) {
    condition = ifTrue;
    if (parser.parseComma() || parseShort(parser, ifTrue))
      return failure();
  }
  ifFalse = ifTrue;
  if (succeeded(parser.parseOptionalComma()))
    return parseShort(parser, ifFalse);
  return success();
}
static void printSelectTypes(OpAsmPrinter &printer, Operation *, Type condition,
                             Type ifTrue, Type ifFalse) {
  if (isShaped(condition)) {
    printShort(printer, condition);
    printer << ", ";
  }
  printShortTypeList(printer, {ifTrue, ifFalse});
}

//===----------------------------------------------------------------------===//
// Reductions: the dims of `over [n, m]`
//===----------------------------------------------------------------------===//

static ParseResult parseDimNames(OpAsmParser &parser, ArrayAttr &over) {
  SmallVector<StringAttr> dims;
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Square,
                                     [&] { return parseDim(parser, dims); }))
    return failure();
  over = parser.getBuilder().getArrayAttr(
      SmallVector<Attribute>(dims.begin(), dims.end()));
  return success();
}
static void printDimNames(OpAsmPrinter &printer, Operation *, ArrayAttr over) {
  printer << "[";
  llvm::interleaveComma(over.getAsRange<StringAttr>(), printer,
                        [&](StringAttr dim) { printer << dim.getValue(); });
  printer << "]";
}

static ParseResult parseDimName(OpAsmParser &parser, StringAttr &dim) {
  SmallVector<StringAttr> dims;
  if (parseDim(parser, dims))
    return failure();
  dim = dims.front();
  return success();
}
static void printDimName(OpAsmPrinter &printer, Operation *, StringAttr dim) {
  printer << dim.getValue();
}

//===----------------------------------------------------------------------===//
// OptionOp: `= false`, `= 128`, or `= %hyper ne 0.0`
//===----------------------------------------------------------------------===//

/// The comparison is a word: `!=` is no token of MLIR's lexer.
static ParseResult
parseOptionValue(OpAsmParser &parser, BoolAttr &defaultValue,
                 IntegerAttr &defaultInteger,
                 std::optional<OpAsmParser::UnresolvedOperand> &hyper,
                 PredicateAttr &predicate, FloatAttr &threshold, Type &type) {
  Builder &builder = parser.getBuilder();
  type = builder.getI1Type();
  OpAsmParser::UnresolvedOperand operand;
  OptionalParseResult hasOperand = parser.parseOptionalOperand(operand);
  if (hasOperand.has_value()) {
    if (failed(*hasOperand))
      return failure();
    hyper = operand;
    return failure(parsePlainPredicate(parser, predicate) ||
                   parseFloat(parser, threshold));
  }
  // Before integers: true and false are integers to MLIR's parser.
  for (bool value : {false, true})
    if (succeeded(parser.parseOptionalKeyword(value ? "true" : "false"))) {
      defaultValue = builder.getBoolAttr(value);
      return success();
    }
  int64_t integer = 0;
  OptionalParseResult hasInteger = parser.parseOptionalInteger(integer);
  if (!hasInteger.has_value())
    return parser.emitError(parser.getCurrentLocation(),
                            "expected true, false, an integer or a comparison "
                            "of a hyper-parameter");
  defaultInteger = builder.getI64IntegerAttr(integer);
  type = builder.getI64Type();
  return *hasInteger;
}

static void printOptionValue(OpAsmPrinter &printer, Operation *,
                             BoolAttr defaultValue, IntegerAttr defaultInteger,
                             Value hyper, PredicateAttr predicate,
                             FloatAttr threshold, Type) {
  if (defaultInteger) {
    printer << defaultInteger.getInt();
    return;
  }
  if (!predicate) {
    printer << (defaultValue.getValue() ? "true" : "false");
    return;
  }
  printer << hyper << " " << stringifyPredicate(predicate.getValue()) << " ";
  printFloat(printer, threshold.getValue());
}

//===----------------------------------------------------------------------===//
// ScalarsOp: types are those that its body yields
//===----------------------------------------------------------------------===//

ParseResult ScalarsOp::parse(OpAsmParser &parser, OperationState &result) {
  StringRef word;
  if (parser.parseKeyword("over"))
    return failure();
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseKeyword(&word))
    return failure();
  std::optional<Scope> scope = symbolizeScope(word);
  if (!scope)
    return parser.emitError(loc, "'") << word << "' is neither model nor group";
  result.addAttribute(getScopeAttrName(result.name),
                      ScopeAttr::get(parser.getContext(), *scope));
  Region *body = result.addRegion();
  if (parser.parseOptionalAttrDictWithKeyword(result.attributes) ||
      parseBody(parser, *body))
    return failure();
  if (!body->front().empty())
    if (auto yield = dyn_cast<YieldOp>(body->front().back()))
      result.addTypes(yield.getValues().getTypes());
  return success();
}

void ScalarsOp::print(OpAsmPrinter &printer) {
  printer << " over " << stringifyScope(getScope());
  printer.printOptionalAttrDictWithKeyword((*this)->getAttrs(),
                                           {getScopeAttrName()});
  printer << " ";
  printer.printRegion(getBody());
}

//===----------------------------------------------------------------------===//
// ReturnOp: types are the rule's
//===----------------------------------------------------------------------===//

ParseResult ReturnOp::parse(OpAsmParser &parser, OperationState &result) {
  SmallVector<OpAsmParser::UnresolvedOperand> values;
  SmallVector<Type> types;
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseOperandList(values) ||
      parser.parseOptionalAttrDict(result.attributes))
    return failure();
  if (succeeded(parser.parseOptionalColon())) {
    if (parser.parseCommaSeparatedList(
            [&] { return parseShort(parser, types.emplace_back()); }))
      return failure();
  } else {
    types.assign(values.size(),
                 SymTensorType::get(parser.getContext(),
                                    StringAttr::get(parser.getContext(), "*")));
  }
  return parser.resolveOperands(values, types, loc, result.operands);
}

void ReturnOp::print(OpAsmPrinter &printer) {
  printer << " " << getValues();
  printer.printOptionalAttrDict((*this)->getAttrs());
  bool anyRank = llvm::all_of(getValues().getTypes(), [](Type type) {
    return getDims(type).size() == 1 && getDims(type)[0].getValue() == "*";
  });
  if (anyRank)
    return;
  printer << " : ";
  llvm::interleaveComma(getValues().getTypes(), printer,
                        [&](Type type) { printShort(printer, type); });
}

#define GET_OP_CLASSES
#include "dialect/Step.cpp.inc"
