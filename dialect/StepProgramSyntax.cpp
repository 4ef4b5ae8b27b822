//===- StepProgramSyntax.cpp - how a program is written ---------------- ===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/StepParsers.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace mlir::step;

using Operand = OpAsmParser::UnresolvedOperand;

//===----------------------------------------------------------------------===//
// ProgramOp
//===----------------------------------------------------------------------===//

/// `@name(%p: param[n, m] as f32, ...) variant <...> elementwise { ... }`
ParseResult ProgramOp::parse(OpAsmParser &parser, OperationState &result) {
  Builder &builder = parser.getBuilder();
  StringAttr name;
  SmallVector<ParsedRole> parsed;
  SmallVector<Operand> guards;
  VariantAttr variant;
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseSymbolName(name, getSymNameAttrName(result.name),
                             result.attributes) ||
      parser.parseCommaSeparatedList(
          AsmParser::Delimiter::Paren,
          [&] { return parseRole(parser, parsed.emplace_back(), guards); }) ||
      parser.parseKeyword("variant") ||
      parser.parseCustomAttributeWithFallback(
          variant, Type(), getVariantAttrName(result.name), result.attributes))
    return failure();
  if (!guards.empty())
    return parser.emitError(loc, "expected states without guards in a program");
  if (succeeded(parser.parseOptionalKeyword("elementwise")))
    result.addAttribute(getElementwiseAttrName(result.name),
                        builder.getUnitAttr());
  SmallVector<Attribute> roles;
  SmallVector<OpAsmParser::Argument> arguments;
  for (ParsedRole &one : parsed) {
    if (one.role.isTensor()) {
      if (!one.role.getStorage())
        return parser.emitError(loc, "expected a storage type for '")
               << one.role.getDisplayName() << "'";
      one.argument.type =
          BufferType::get(parser.getContext(), getDims(one.argument.type),
                          one.role.getStorage());
    }
    roles.push_back(one.role);
    arguments.push_back(one.argument);
  }
  result.addAttribute(getRolesAttrName(result.name),
                      builder.getArrayAttr(roles));
  return failure(parser.parseOptionalAttrDictWithKeyword(result.attributes) ||
                 parser.parseRegion(*result.addRegion(), arguments));
}

void ProgramOp::print(OpAsmPrinter &printer) {
  printer << " ";
  printer.printSymbolName(getSymName());
  printer << "(";
  llvm::interleaveComma(
      getBody().getArguments(), printer, [&](BlockArgument argument) {
        printRole(printer, argument, getRole(argument.getArgNumber()), {});
      });
  printer << ") variant ";
  printer.printStrippedAttrOrType(getVariant());
  if (getElementwise())
    printer << " elementwise";
  printer.printOptionalAttrDictWithKeyword(
      (*this)->getAttrs(), {getSymNameAttrName(), getRolesAttrName(),
                            getVariantAttrName(), getElementwiseAttrName()});
  printer << " ";
  printer.printRegion(getBody(), /*printEntryBlockArgs=*/false);
}

//===----------------------------------------------------------------------===//
// Bodies: CohortScalarsOp, TraverseOp
//===----------------------------------------------------------------------===//

void mlir::step::printCode(OpAsmPrinter &printer, Operation *, Region &body) {
  // What is printed need not be valid.
  auto isLine = [](Operation &op) { return op.getNumResults() <= 1; };
  if (!llvm::hasSingleElement(body) || !llvm::all_of(body.front(), isLine))
    return printer.printRegion(body, /*printEntryBlockArgs=*/false);
  printer << "{";
  printer.increaseIndent();
  for (Operation &op : body.front()) {
    printer.printNewline();
    if (op.getNumResults() == 1)
      printer << op.getResult(0) << " = ";
    printer.printCustomOrGenericOp(&op);
    // Where locations are not asked for, this would give them names all the
    // same.
    if (OpPrintingFlags().shouldPrintDebugInfo())
      printer.printOptionalLocationSpecifier(op.getLoc());
  }
  printer.decreaseIndent();
  printer << " }";
}

ParseResult mlir::step::parseCode(OpAsmParser &parser, Region &body) {
  return parser.parseRegion(body);
}

/// `(%element = %buffer : <[n, m], f32>, ...)`, or, without elements,
/// `(%buffer : <[n, m], f32>, ...)`.
static ParseResult
parseBuffers(OpAsmParser &parser, StringRef word,
             SmallVectorImpl<Operand> &buffers, SmallVectorImpl<Type> &types,
             SmallVectorImpl<OpAsmParser::Argument> *elements) {
  if (failed(parser.parseOptionalKeyword(word)))
    return success();
  return parser.parseCommaSeparatedList(AsmParser::Delimiter::Paren, [&] {
    BufferType type;
    if (elements &&
        (parser.parseArgument(elements->emplace_back()) ||
         parser.parseOptionalLocationSpecifier(elements->back().sourceLoc) ||
         parser.parseEqual()))
      return failure();
    if (parser.parseOperand(buffers.emplace_back()) || parser.parseColon() ||
        parser.parseCustomTypeWithFallback(type))
      return failure();
    types.push_back(type);
    if (elements)
      elements->back().type = type.getElement();
    return success();
  });
}

/// `scalars (%w = %scalar as f32, ...)`: scalars of the program, and the type
/// in which the body has them.
static ParseResult
parseScalars(OpAsmParser &parser, SmallVectorImpl<Operand> &scalars,
             SmallVectorImpl<Type> &types,
             SmallVectorImpl<OpAsmParser::Argument> &arguments) {
  if (failed(parser.parseOptionalKeyword("scalars")))
    return success();
  return parser.parseCommaSeparatedList(AsmParser::Delimiter::Paren, [&] {
    OpAsmParser::Argument &argument = arguments.emplace_back();
    if (parser.parseArgument(argument) ||
        parser.parseOptionalLocationSpecifier(argument.sourceLoc) ||
        parser.parseEqual() || parser.parseOperand(scalars.emplace_back()) ||
        parser.parseKeyword("as") || parser.parseType(argument.type))
      return failure();
    types.push_back(isa<FloatType>(argument.type)
                        ? parser.getBuilder().getF64Type()
                        : argument.type);
    return success();
  });
}

/// `makes (f32, ...)`: the element types of new buffers over all dims.
static ParseResult parseMade(OpAsmParser &parser, ArrayRef<StringAttr> over,
                             SmallVectorImpl<Type> &results) {
  if (failed(parser.parseOptionalKeyword("makes")))
    return success();
  return parser.parseCommaSeparatedList(AsmParser::Delimiter::Paren, [&] {
    Type element;
    SMLoc loc = parser.getCurrentLocation();
    if (parser.parseType(element))
      return failure();
    results.push_back(
        BufferType::getChecked([&] { return parser.emitError(loc); },
                               parser.getContext(), over, element));
    return success(bool(results.back()));
  });
}

/// `partials (sum to [n, 1], ...)`.
static ParseResult parsePartials(OpAsmParser &parser, ArrayRef<StringAttr> over,
                                 SmallVectorImpl<Type> &results) {
  if (failed(parser.parseOptionalKeyword("partials")))
    return success();
  return parser.parseCommaSeparatedList(AsmParser::Delimiter::Paren, [&] {
    StringRef word;
    SMLoc loc = parser.getCurrentLocation();
    SmallVector<StringAttr> kept;
    if (parser.parseKeyword(&word))
      return ParseResult(failure());
    std::optional<Combiner> combiner = symbolizeCombiner(word);
    if (!combiner)
      return ParseResult(parser.emitError(loc, "'")
                         << word << "' is not one of sum, amax");
    if (parser.parseKeyword("to") ||
        parser.parseCommaSeparatedList(AsmParser::Delimiter::Square,
                                       [&] { return parseDim(parser, kept); }))
      return ParseResult(failure());
    results.push_back(
        PartialType::get(parser.getContext(), *combiner, over, kept));
    return ParseResult(success());
  });
}

ParseResult TraverseOp::parse(OpAsmParser &parser, OperationState &result) {
  Builder &builder = parser.getBuilder();
  StringAttr name;
  Type over;
  Operand unless;
  SmallVector<Operand> reads, scalars, writes;
  SmallVector<Type> readTypes, scalarTypes, writeTypes, results;
  SmallVector<OpAsmParser::Argument> arguments;
  if (parser.parseSymbolName(name, getSymNameAttrName(result.name),
                             result.attributes))
    return failure();
  if (succeeded(parser.parseOptionalKeyword("trailing")))
    result.addAttribute(getTrailingAttrName(result.name),
                        builder.getUnitAttr());
  bool isLeftOut = succeeded(parser.parseOptionalKeyword("unless"));
  SMLoc loc = parser.getCurrentLocation();
  if ((isLeftOut && parser.parseOperand(unless)) ||
      parser.parseKeyword("over") || parseShort(parser, over))
    return failure();
  result.addAttribute(getOverAttrName(result.name), TypeAttr::get(over));
  if (parseBuffers(parser, "reads", reads, readTypes, &arguments) ||
      parseScalars(parser, scalars, scalarTypes, arguments) ||
      parseBuffers(parser, "writes", writes, writeTypes, nullptr))
    return failure();
  results = writeTypes;
  if (parseMade(parser, getDims(over), results) ||
      parsePartials(parser, getDims(over), results) ||
      parser.parseOptionalAttrDictWithKeyword(result.attributes) ||
      parser.resolveOperands(reads, readTypes, loc, result.operands) ||
      parser.resolveOperands(scalars, scalarTypes, loc, result.operands) ||
      parser.resolveOperands(writes, writeTypes, loc, result.operands) ||
      (isLeftOut &&
       parser.resolveOperand(unless, builder.getI1Type(), result.operands)))
    return failure();
  result.addAttribute(getOperandSegmentSizesAttrName(result.name),
                      builder.getDenseI32ArrayAttr(
                          {int32_t(reads.size()), int32_t(scalars.size()),
                           int32_t(writes.size()), int32_t(isLeftOut)}));
  result.addTypes(results);
  return parser.parseRegion(*result.addRegion(), arguments,
                            /*enableNameShadowing=*/true);
}

static void printScalars(OpAsmPrinter &printer, TraverseOp op) {
  if (op.getScalars().empty())
    return;
  printer << " scalars (";
  llvm::interleaveComma(
      llvm::zip(op.getScalarArguments(), op.getScalars()), printer,
      [&](auto pair) {
        auto [argument, scalar] = pair;
        printer.printRegionArgument(argument, {}, /*omitType=*/true);
        printer << " = " << scalar << " as " << argument.getType();
      });
  printer << ")";
}

void TraverseOp::print(OpAsmPrinter &printer) {
  auto printBuffer = [&](Value buffer) {
    printer << buffer << " : ";
    printer.printStrippedAttrOrType(cast<BufferType>(buffer.getType()));
  };
  printer << " ";
  printer.printSymbolName(getSymName());
  if (getTrailing())
    printer << " trailing";
  if (getUnless())
    printer << " unless " << getUnless();
  printer << " over ";
  printShort(printer, getOver());
  if (!getReads().empty()) {
    printer << " reads (";
    llvm::interleaveComma(llvm::zip(getBody().getArguments(), getReads()),
                          printer, [&](auto pair) {
                            auto [element, buffer] = pair;
                            printer.printRegionArgument(element, {},
                                                        /*omitType=*/true);
                            printer << " = ";
                            printBuffer(buffer);
                          });
    printer << ")";
  }
  printScalars(printer, *this);
  if (!getWrites().empty()) {
    printer << " writes (";
    llvm::interleaveComma(getWrites(), printer, printBuffer);
    printer << ")";
  }
  if (SmallVector<Value> made = getMade(); !made.empty()) {
    printer << " makes (";
    llvm::interleaveComma(made, printer, [&](Value buffer) {
      printer << cast<BufferType>(buffer.getType()).getElement();
    });
    printer << ")";
  }
  if (SmallVector<Value> partials = getPartials(); !partials.empty()) {
    printer << " partials (";
    llvm::interleaveComma(partials, printer, [&](Value partial) {
      auto type = cast<PartialType>(partial.getType());
      printer << stringifyCombiner(type.getCombiner()) << " to [";
      llvm::interleaveComma(type.getKept(), printer,
                            [&](StringAttr dim) { printer << dim.getValue(); });
      printer << "]";
    });
    printer << ")";
  }
  printer.printOptionalAttrDictWithKeyword(
      (*this)->getAttrs(),
      {getSymNameAttrName(), getOverAttrName(), getTrailingAttrName(),
       getOperandSegmentSizesAttrName()});
  printer << " ";
  printCode(printer, *this, getBody());
}

//===----------------------------------------------------------------------===//
// ExchangeOp
//===----------------------------------------------------------------------===//

/// `round 0 (%share over ["n"] : !step.share<...>, ...)`
ParseResult ExchangeOp::parse(OpAsmParser &parser, OperationState &result) {
  Builder &builder = parser.getBuilder();
  IntegerAttr round;
  SmallVector<Operand> shares;
  SmallVector<Type> types;
  SmallVector<Attribute> over;
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseKeyword("round") ||
      parser.parseAttribute(round, builder.getI64Type(),
                            getRoundAttrName(result.name), result.attributes) ||
      parser.parseCommaSeparatedList(
          AsmParser::Delimiter::OptionalParen,
          [&]() -> ParseResult {
            ArrayAttr dims;
            ShareType type;
            if (parser.parseOperand(shares.emplace_back()) ||
                parser.parseKeyword("over") || parser.parseAttribute(dims) ||
                parser.parseColon() || parser.parseType(type))
              return failure();
            over.push_back(dims);
            types.push_back(type);
            return success();
          }) ||
      parser.parseOptionalAttrDict(result.attributes) ||
      parser.resolveOperands(shares, types, loc, result.operands))
    return failure();
  result.addAttribute(getOverAttrName(result.name), builder.getArrayAttr(over));
  result.addTypes(types);
  return success();
}

void ExchangeOp::print(OpAsmPrinter &printer) {
  printer << " round " << getRound();
  if (!getShares().empty()) {
    printer << " (";
    llvm::interleaveComma(
        llvm::zip(getShares(), getOver()), printer, [&](auto pair) {
          auto [share, dims] = pair;
          printer << share << " over " << dims << " : " << share.getType();
        });
    printer << ")";
  }
  printer.printOptionalAttrDict((*this)->getAttrs(),
                                {getRoundAttrName(), getOverAttrName()});
}
