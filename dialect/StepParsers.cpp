//===- StepParsers.cpp - custom syntax ---------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/Step.h"

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
static ParseResult parseFloat(OpAsmParser &parser, FloatAttr &attr) {
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

static ParseResult parsePlainPredicate(OpAsmParser &parser,
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
static void printPlainPredicate(OpAsmPrinter &printer, Operation *,
                                PredicateAttr attr) {
  printer << stringifyPredicate(attr.getValue());
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

//===----------------------------------------------------------------------===//
// Reductions: `over [n, m]`, or nothing
//===----------------------------------------------------------------------===//

static ParseResult parseOver(OpAsmParser &parser, ArrayAttr &over) {
  if (failed(parser.parseOptionalKeyword("over")))
    return success();
  SmallVector<StringAttr> dims;
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Square,
                                     [&] { return parseDim(parser, dims); }))
    return failure();
  over = parser.getBuilder().getArrayAttr(
      SmallVector<Attribute>(dims.begin(), dims.end()));
  return success();
}
static void printOver(OpAsmPrinter &printer, Operation *, ArrayAttr over) {
  if (!over)
    return;
  printer << "over [";
  llvm::interleaveComma(over.getAsRange<StringAttr>(), printer,
                        [&](StringAttr dim) { printer << dim.getValue(); });
  printer << "]";
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
// RuleOp
//===----------------------------------------------------------------------===//

namespace {
/// One argument of a rule while it is parsed.
struct ParsedRole {
  OpAsmParser::Argument argument;
  RoleAttr role;
};
} // namespace

/// Parses what follows a state's type: `= init`, `if %guard`.
static ParseResult
parseStateTail(OpAsmParser &parser, FloatAttr &init,
               SmallVectorImpl<OpAsmParser::UnresolvedOperand> &guards,
               bool &guarded) {
  init = parser.getBuilder().getF64FloatAttr(0.0);
  if (succeeded(parser.parseOptionalEqual()) && parseFloat(parser, init))
    return failure();
  guarded = succeeded(parser.parseOptionalKeyword("if"));
  return guarded ? parser.parseOperand(guards.emplace_back()) : success();
}

/// Parses one argument of a rule and what is said of it, such as `%p:
/// param[*]`,
/// `%m: state "exp_avg"[*] = 0.0 if %option as f32`, `%t: count`.
static ParseResult
parseRole(OpAsmParser &parser, ParsedRole &parsed,
          SmallVectorImpl<OpAsmParser::UnresolvedOperand> &guards) {
  MLIRContext *context = parser.getContext();
  StringRef word;
  // Where locations are printed, the argument's follows its name.
  if (parser.parseArgument(parsed.argument) ||
      parser.parseOptionalLocationSpecifier(parsed.argument.sourceLoc) ||
      parser.parseColon())
    return failure();
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseKeyword(&word))
    return failure();
  std::optional<RoleKind> kind = symbolizeRoleKind(word);
  if (!kind)
    return parser.emitError(loc, "'")
           << word << "' is not one of param, grad, state, count, fresh";

  std::string name;
  FloatAttr init;
  bool guarded = false;
  Type storage;
  Builder &builder = parser.getBuilder();
  if (*kind == RoleKind::State && parser.parseString(&name))
    return failure();
  if (*kind == RoleKind::Count) {
    parsed.argument.type = builder.getI64Type();
  } else if (*kind == RoleKind::Fresh) {
    parsed.argument.type = builder.getI1Type();
  } else {
    SMLoc typeLoc = parser.getCurrentLocation();
    if (parseShort(parser, parsed.argument.type))
      return failure();
    if (!isa<SymTensorType>(parsed.argument.type))
      return parser.emitError(typeLoc,
                              "expected the dims of a tensor, as [n, m]");
    if (*kind == RoleKind::State &&
        parseStateTail(parser, init, guards, guarded))
      return failure();
    if (succeeded(parser.parseOptionalKeyword("as")) &&
        parser.parseType(storage))
      return failure();
  }
  parsed.role = RoleAttr::getChecked(
      [&] { return parser.emitError(loc); }, context, *kind,
      builder.getStringAttr(name), init, guarded, storage);
  return success(bool(parsed.role));
}

namespace {
/// The conditions of a rule while they are parsed.
struct ParsedConditions {
  SmallVector<Attribute> attrs;
  SmallVector<OpAsmParser::UnresolvedOperand> operands;
  SmallVector<Type> types;
};
} // namespace

/// Parses `%option`, or `not %option`.
static ParseResult parseOptionCondition(OpAsmParser &parser,
                                        ParsedConditions &parsed) {
  bool negated = succeeded(parser.parseOptionalKeyword("not"));
  SMLoc loc = parser.getCurrentLocation();
  OpAsmParser::UnresolvedOperand operand;
  OptionalParseResult hasOperand = parser.parseOptionalOperand(operand);
  if (!hasOperand.has_value())
    return parser.emitError(loc, "expected rank, extent or an option");
  parsed.attrs.push_back(ConditionAttr::get(
      parser.getContext(), ConditionKind::Option,
      negated ? Predicate::NE : Predicate::EQ, 0, std::nullopt));
  parsed.operands.push_back(operand);
  parsed.types.push_back(parser.getBuilder().getI1Type());
  return *hasOperand;
}

/// Parses one condition: `rank ge 2`, `extent -1 lt %option`, `%option`.
static ParseResult parseCondition(OpAsmParser &parser,
                                  ParsedConditions &parsed) {
  ConditionKind kind = ConditionKind::Rank;
  int64_t dim = 0, integer = 0;
  if (succeeded(parser.parseOptionalKeyword("extent"))) {
    kind = ConditionKind::Extent;
    if (parser.parseInteger(dim))
      return failure();
  } else if (failed(parser.parseOptionalKeyword("rank"))) {
    return parseOptionCondition(parser, parsed);
  }
  PredicateAttr predicate;
  if (parsePlainPredicate(parser, predicate))
    return failure();
  std::optional<int64_t> value;
  OptionalParseResult hasInteger = parser.parseOptionalInteger(integer);
  if (hasInteger.has_value()) {
    if (failed(*hasInteger))
      return failure();
    value = integer;
  } else {
    if (parser.parseOperand(parsed.operands.emplace_back()))
      return failure();
    parsed.types.push_back(parser.getBuilder().getI64Type());
  }
  parsed.attrs.push_back(ConditionAttr::get(parser.getContext(), kind,
                                            predicate.getValue(), dim, value));
  return success();
}

static ParseResult parseConditions(OpAsmParser &parser,
                                   ParsedConditions &parsed) {
  if (failed(parser.parseOptionalKeyword("where")))
    return success();
  return parser.parseCommaSeparatedList(
      [&] { return parseCondition(parser, parsed); });
}

ParseResult RuleOp::parse(OpAsmParser &parser, OperationState &result) {
  Builder &builder = parser.getBuilder();
  StringAttr name;
  SmallVector<ParsedRole> parsed;
  SmallVector<OpAsmParser::UnresolvedOperand> guards;
  ParsedConditions conditions;
  VariantAttr variant;
  SMLoc loc = parser.getCurrentLocation();
  auto emitError = [&] { return parser.emitError(loc); };
  if (parser.parseSymbolName(name, getSymNameAttrName(result.name),
                             result.attributes) ||
      parser.parseCommaSeparatedList(
          AsmParser::Delimiter::Paren,
          [&] { return parseRole(parser, parsed.emplace_back(), guards); }) ||
      parseConditions(parser, conditions))
    return failure();
  if (succeeded(parser.parseOptionalKeyword("variant")) &&
      parser.parseCustomAttributeWithFallback(
          variant, Type(), getVariantAttrName(result.name), result.attributes))
    return failure();
  if (parser.parseOptionalAttrDictWithKeyword(result.attributes) ||
      failed(verifyInherentAttrs(result.name, result.attributes, emitError)) ||
      parser.resolveOperands(guards, builder.getI1Type(), result.operands) ||
      parser.resolveOperands(conditions.operands, conditions.types, loc,
                             result.operands))
    return failure();

  SmallVector<Attribute> roles;
  SmallVector<OpAsmParser::Argument> arguments;
  for (ParsedRole &one : parsed) {
    roles.push_back(one.role);
    arguments.push_back(one.argument);
  }
  result.addAttribute(getRolesAttrName(result.name),
                      builder.getArrayAttr(roles));
  if (!conditions.attrs.empty())
    result.addAttribute(getConditionsAttrName(result.name),
                        builder.getArrayAttr(conditions.attrs));
  result.addAttribute(
      getOperandSegmentSizesAttrName(result.name),
      builder.getDenseI32ArrayAttr(
          {int32_t(guards.size()), int32_t(conditions.operands.size())}));
  Region *body = result.addRegion();
  if (parser.parseRegion(*body, arguments))
    return failure();
  if (body->empty())
    body->emplaceBlock();
  return success();
}

/// Prints one role as parseRole reads it. `guard` is null where there is none.
static void printRole(OpAsmPrinter &printer, BlockArgument argument,
                      RoleAttr role, Value guard) {
  printer.printRegionArgument(argument, {}, /*omitType=*/true);
  printer << ": " << stringifyRoleKind(role.getKind());
  if (role.getKind() == RoleKind::State) {
    printer << " ";
    printer.printString(role.getName());
  }
  if (role.isTensor())
    printShort(printer, argument.getType());
  if (role.getInit() && !role.getInit().getValue().isPosZero()) {
    printer << " = ";
    printFloat(printer, role.getInit().getValue());
  }
  if (guard)
    printer << " if " << guard;
  if (role.getStorage())
    printer << " as " << role.getStorage();
}

/// Prints one condition as parseCondition reads it.
static void printCondition(OpAsmPrinter &printer,
                           const RuleCondition &condition) {
  ConditionAttr attr = condition.attr;
  if (attr.getKind() == ConditionKind::Option) {
    printer << (attr.getPredicate() == Predicate::NE ? "not " : "")
            << condition.operand;
    return;
  }
  printer << stringifyConditionKind(attr.getKind());
  if (attr.getKind() == ConditionKind::Extent)
    printer << " " << attr.getDim();
  printer << " " << stringifyPredicate(attr.getPredicate()) << " ";
  if (attr.getValue())
    printer << *attr.getValue();
  else
    printer << condition.operand;
}

void RuleOp::print(OpAsmPrinter &printer) {
  printer << " ";
  printer.printSymbolName(getSymName());
  printer << "(";
  llvm::interleaveComma(
      getBody().getArguments(), printer, [&](BlockArgument argument) {
        unsigned index = argument.getArgNumber();
        printRole(printer, argument, getRole(index), getGuard(index));
      });
  printer << ")";
  if (SmallVector<RuleCondition> conditions = getRuleConditions();
      !conditions.empty()) {
    printer << " where ";
    llvm::interleaveComma(conditions, printer,
                          [&](const RuleCondition &condition) {
                            printCondition(printer, condition);
                          });
  }
  if (VariantAttr variant = getVariantAttr()) {
    printer << " variant ";
    printer.printStrippedAttrOrType(variant);
  }
  printer.printOptionalAttrDictWithKeyword(
      (*this)->getAttrs(),
      {getSymNameAttrName(), getRolesAttrName(), getConditionsAttrName(),
       getVariantAttrName(), getOperandSegmentSizesAttrName()});
  printer << " ";
  printer.printRegion(getBody(), /*printEntryBlockArgs=*/false);
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
      parser.parseRegion(*body, {}))
    return failure();
  if (body->empty())
    body->emplaceBlock();
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
