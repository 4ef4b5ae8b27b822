//===- StepRuleSyntax.cpp - how a rule is written --------------------- ===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/StepParsers.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace mlir::step;

/// Parses what follows a state's type: `= init`, `kept` or `given`, `if
/// %guard`.
static ParseResult
parseStateTail(OpAsmParser &parser, FloatAttr &init,
               SmallVectorImpl<OpAsmParser::UnresolvedOperand> &guards,
               bool &kept, bool &given, bool &guarded) {
  init = parser.getBuilder().getF64FloatAttr(0.0);
  if (succeeded(parser.parseOptionalEqual()) && parseFloat(parser, init))
    return failure();
  kept = succeeded(parser.parseOptionalKeyword("kept"));
  given = succeeded(parser.parseOptionalKeyword("given"));
  guarded = succeeded(parser.parseOptionalKeyword("if"));
  return guarded ? parser.parseOperand(guards.emplace_back()) : success();
}

/// Parses the states that a fresh speaks of, `("a", "b")`; null where it names
/// none.
static ParseResult parseFreshStates(OpAsmParser &parser, ArrayAttr &states) {
  if (failed(parser.parseOptionalLParen()))
    return success();
  Builder &builder = parser.getBuilder();
  SmallVector<Attribute> names;
  if (failed(parser.parseOptionalRParen())) {
    auto parseName = [&]() -> ParseResult {
      std::string name;
      if (parser.parseString(&name))
        return failure();
      names.push_back(builder.getStringAttr(name));
      return success();
    };
    if (parser.parseCommaSeparatedList(parseName) || parser.parseRParen())
      return failure();
  }
  states = builder.getArrayAttr(names);
  return success();
}

ParseResult
mlir::step::parseRole(OpAsmParser &parser, ParsedRole &parsed,
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
           << word
           << "' is not one of param, grad, state, count, fresh, position";

  std::string name;
  FloatAttr init;
  bool kept = false, given = false, guarded = false;
  Type storage;
  ArrayAttr states;
  Builder &builder = parser.getBuilder();
  if (*kind == RoleKind::State && parser.parseString(&name))
    return failure();
  if (*kind == RoleKind::Count) {
    parsed.argument.type = builder.getI64Type();
  } else if (*kind == RoleKind::Fresh) {
    parsed.argument.type = builder.getI1Type();
    if (parseFreshStates(parser, states))
      return failure();
  } else {
    SMLoc typeLoc = parser.getCurrentLocation();
    if (parseShort(parser, parsed.argument.type))
      return failure();
    if (!isa<SymTensorType>(parsed.argument.type))
      return parser.emitError(typeLoc,
                              "expected the dims of a tensor, as [n, m]");
    if (*kind == RoleKind::State &&
        parseStateTail(parser, init, guards, kept, given, guarded))
      return failure();
    if (succeeded(parser.parseOptionalKeyword("as")) &&
        parser.parseType(storage))
      return failure();
  }
  parsed.role = RoleAttr::getChecked(
      [&] { return parser.emitError(loc); }, context, *kind,
      builder.getStringAttr(name), init, guarded, kept, given, storage, states);
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
      negated ? Predicate::NE : Predicate::EQ, 0, std::nullopt, std::nullopt));
  parsed.operands.push_back(operand);
  parsed.types.push_back(parser.getBuilder().getI1Type());
  return *hasOperand;
}

/// Parses one condition: `rank ge 2`, `extent -1 lt %option`,
/// `extent 0 gt extent 1`, `%option`.
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
  if (parsePredicate(parser, predicate))
    return failure();
  std::optional<int64_t> value, other;
  OptionalParseResult hasInteger = parser.parseOptionalInteger(integer);
  if (succeeded(parser.parseOptionalKeyword("extent"))) {
    if (parser.parseInteger(other.emplace()))
      return failure();
  } else if (hasInteger.has_value()) {
    if (failed(*hasInteger))
      return failure();
    value = integer;
  } else {
    if (parser.parseOperand(parsed.operands.emplace_back()))
      return failure();
    parsed.types.push_back(parser.getBuilder().getI64Type());
  }
  parsed.attrs.push_back(ConditionAttr::get(
      parser.getContext(), kind, predicate.getValue(), dim, value, other));
  return success();
}

static ParseResult parseConditions(OpAsmParser &parser,
                                   ParsedConditions &parsed) {
  if (failed(parser.parseOptionalKeyword("where")))
    return success();
  return parser.parseCommaSeparatedList(
      [&] { return parseCondition(parser, parsed); });
}

namespace {
/// The dims that follow from others while they are parsed.
struct ParsedDims {
  SmallVector<Attribute> attrs;
  SmallVector<OpAsmParser::UnresolvedOperand> operands;
};
} // namespace

/// Parses what a dim is the least of: a dim, a number, an option.
static ParseResult parseLeast(OpAsmParser &parser, ParsedDims &parsed,
                              SmallVectorImpl<Attribute> &of,
                              std::optional<int64_t> &most, bool &optional) {
  SMLoc loc = parser.getCurrentLocation();
  int64_t number = 0;
  OptionalParseResult hasNumber = parser.parseOptionalInteger(number);
  if (hasNumber.has_value()) {
    if (most)
      return parser.emitError(loc, "a dim is the least of two numbers");
    most = number;
    return *hasNumber;
  }
  OpAsmParser::UnresolvedOperand operand;
  OptionalParseResult hasOperand = parser.parseOptionalOperand(operand);
  if (hasOperand.has_value()) {
    if (optional)
      return parser.emitError(loc, "a dim is the least of two options");
    optional = true;
    parsed.operands.push_back(operand);
    return *hasOperand;
  }
  SmallVector<StringAttr> dims;
  if (parseDim(parser, dims))
    return failure();
  of.push_back(dims.front());
  return success();
}

/// Parses `dim r = min %rank, n, m`, or `dim k = m / 64`, any number of them.
static ParseResult parseDims(OpAsmParser &parser, ParsedDims &parsed) {
  while (succeeded(parser.parseOptionalKeyword("dim"))) {
    SMLoc loc = parser.getCurrentLocation();
    StringRef name;
    SmallVector<Attribute> of;
    std::optional<int64_t> most;
    bool optional = false;
    int64_t per = 1;
    if (parser.parseKeyword(&name) || parser.parseEqual())
      return failure();
    if (succeeded(parser.parseOptionalKeyword("min"))) {
      if (parser.parseCommaSeparatedList(
              [&] { return parseLeast(parser, parsed, of, most, optional); }))
        return failure();
    } else if (parseLeast(parser, parsed, of, most, optional)) {
      return failure();
    }
    if (succeeded(parser.parseOptionalSlash()) && parser.parseInteger(per))
      return failure();
    Builder &builder = parser.getBuilder();
    parsed.attrs.push_back(BoundDimAttr::getChecked(
        [&] { return parser.emitError(loc); }, parser.getContext(),
        builder.getStringAttr(name), builder.getArrayAttr(of), most, optional,
        per));
    if (!parsed.attrs.back())
      return failure();
  }
  return success();
}

ParseResult RuleOp::parse(OpAsmParser &parser, OperationState &result) {
  Builder &builder = parser.getBuilder();
  StringAttr name;
  SmallVector<ParsedRole> parsed;
  SmallVector<OpAsmParser::UnresolvedOperand> guards;
  ParsedConditions conditions;
  ParsedDims dims;
  VariantAttr variant;
  SMLoc loc = parser.getCurrentLocation();
  auto emitError = [&] { return parser.emitError(loc); };
  if (parser.parseSymbolName(name, getSymNameAttrName(result.name),
                             result.attributes) ||
      parser.parseCommaSeparatedList(
          AsmParser::Delimiter::Paren,
          [&] { return parseRole(parser, parsed.emplace_back(), guards); }) ||
      parseDims(parser, dims) || parseConditions(parser, conditions))
    return failure();
  if (succeeded(parser.parseOptionalKeyword("variant")) &&
      parser.parseCustomAttributeWithFallback(
          variant, Type(), getVariantAttrName(result.name), result.attributes))
    return failure();
  if (parser.parseOptionalAttrDictWithKeyword(result.attributes) ||
      failed(verifyInherentAttrs(result.name, result.attributes, emitError)) ||
      parser.resolveOperands(guards, builder.getI1Type(), result.operands) ||
      parser.resolveOperands(conditions.operands, conditions.types, loc,
                             result.operands) ||
      parser.resolveOperands(dims.operands, builder.getI64Type(),
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
  if (!dims.attrs.empty())
    result.addAttribute(getBoundDimsAttrName(result.name),
                        builder.getArrayAttr(dims.attrs));
  result.addAttribute(
      getOperandSegmentSizesAttrName(result.name),
      builder.getDenseI32ArrayAttr({int32_t(guards.size()),
                                    int32_t(conditions.operands.size()),
                                    int32_t(dims.operands.size())}));
  Region *body = result.addRegion();
  return parseBody(parser, *body, arguments);
}

void mlir::step::printRole(OpAsmPrinter &printer, BlockArgument argument,
                           RoleAttr role, Value guard) {
  printer.printRegionArgument(argument, {}, /*omitType=*/true);
  printer << ": " << stringifyRoleKind(role.getKind());
  if (role.getKind() == RoleKind::State) {
    printer << " ";
    printer.printString(role.getName());
  }
  if (role.getStates()) {
    printer << "(";
    llvm::interleaveComma(
        role.getStates().getAsRange<StringAttr>(), printer,
        [&](StringAttr name) { printer.printString(name.getValue()); });
    printer << ")";
  }
  if (role.isTensor()) {
    auto buffer = dyn_cast<BufferType>(argument.getType());
    printShort(printer, buffer ? buffer.getShape() : argument.getType());
  }
  if (role.getInit() && !role.getInit().getValue().isPosZero()) {
    printer << " = ";
    printFloat(printer, role.getInit().getValue());
  }
  if (role.getKept())
    printer << " kept";
  if (role.getGiven())
    printer << " given";
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
  else if (attr.getOther())
    printer << "extent " << *attr.getOther();
  else
    printer << condition.operand;
}

/// Prints a dim as parseDims reads it.
static void printDim(OpAsmPrinter &printer, const BoundDim &dim) {
  BoundDimAttr attr = dim.attr;
  bool isLeast =
      attr.getOf().size() + bool(attr.getMost()) + attr.getOptional() > 1;
  printer << " dim " << attr.getName().getValue() << " = "
          << (isLeast ? "min " : "");
  StringRef separator;
  if (attr.getOptional()) {
    printer << dim.operand;
    separator = ", ";
  }
  if (attr.getMost()) {
    printer << separator << *attr.getMost();
    separator = ", ";
  }
  for (auto name : attr.getOf().getAsRange<StringAttr>()) {
    printer << separator << name.getValue();
    separator = ", ";
  }
  if (attr.getPer() != 1)
    printer << " / " << attr.getPer();
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
  for (const BoundDim &dim : getRuleDims())
    printDim(printer, dim);
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
       getBoundDimsAttrName(), getVariantAttrName(),
       getOperandSegmentSizesAttrName()});
  printer << " ";
  printer.printRegion(getBody(), /*printEntryBlockArgs=*/false);
}
