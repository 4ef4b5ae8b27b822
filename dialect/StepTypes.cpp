//===- StepTypes.cpp - symbolic dims and broadcasting ------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/Step.h"

#include "mlir/IR/DialectImplementation.h"

using namespace mlir;
using namespace mlir::step;

static bool isIdentifier(StringRef name) {
  return !name.empty() && (isalpha(name[0]) || name[0] == '_') &&
         llvm::all_of(name, [](char c) { return isalnum(c) || c == '_'; });
}

bool mlir::step::isAnyRank(StringAttr dim) { return dim.getValue() == "*"; }

bool mlir::step::isBatch(StringAttr dim) {
  return dim.getValue().starts_with("...");
}

bool mlir::step::isVector(Type type) {
  ArrayRef<StringAttr> dims = getDims(type);
  return dims.size() == 1 && !isBatch(dims.front());
}

/// Dims are `*` alone, or names and 1, before which there may be one of any
/// number of dims.
static LogicalResult verifyDims(function_ref<InFlightDiagnostic()> emitError,
                                ArrayRef<StringAttr> dims) {
  if (dims.empty())
    return emitError() << "a shape has at least one dim; '*' is any rank";
  for (auto [index, dim] : llvm::enumerate(dims)) {
    StringRef name = dim.getValue();
    if (isAnyRank(dim)) {
      if (dims.size() != 1)
        return emitError() << "dim '*' stands for a whole shape and cannot be "
                              "one of several: "
                           << dims.size() << " dims";
      continue;
    }
    if (name == "1")
      continue;
    if (name.consume_front("...") && index != 0)
      return emitError() << "dim '" << dim.getValue()
                         << "' stands for leading dims and can only be first";
    if (!isIdentifier(name))
      return emitError() << "dim '" << dim.getValue()
                         << "' is neither a name, nor 1, nor *";
  }
  return success();
}

LogicalResult
SymTensorType::verify(function_ref<InFlightDiagnostic()> emitError,
                      ArrayRef<StringAttr> dims) {
  return verifyDims(emitError, dims);
}

LogicalResult SymMaskType::verify(function_ref<InFlightDiagnostic()> emitError,
                                  ArrayRef<StringAttr> dims) {
  return verifyDims(emitError, dims);
}

ParseResult mlir::step::parseDim(AsmParser &parser,
                                 SmallVectorImpl<StringAttr> &dims) {
  MLIRContext *context = parser.getContext();
  if (succeeded(parser.parseOptionalStar())) {
    dims.push_back(StringAttr::get(context, "*"));
    return success();
  }
  int64_t extent = 0;
  OptionalParseResult number = parser.parseOptionalDecimalInteger(extent);
  if (number.has_value()) {
    if (failed(*number))
      return failure();
    dims.push_back(StringAttr::get(context, Twine(extent)));
    return success();
  }
  StringRef dots = succeeded(parser.parseOptionalEllipsis()) ? "..." : "";
  StringRef name;
  if (failed(parser.parseOptionalKeyword(&name)))
    return parser.emitError(parser.getCurrentLocation(),
                            "expected a name, 1 or * as a dim");
  dims.push_back(StringAttr::get(context, dots + name));
  return success();
}

static void printDims(AsmPrinter &printer, ArrayRef<StringAttr> dims) {
  llvm::interleaveComma(dims, printer,
                        [&](StringAttr dim) { printer << dim.getValue(); });
}

template <typename TypeT>
static Type parseLongType(AsmParser &parser) {
  SmallVector<StringAttr> dims;
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::LessGreater,
                                     [&] { return parseDim(parser, dims); }))
    return {};
  return TypeT::getChecked([&] { return parser.emitError(loc); },
                           parser.getContext(), ArrayRef<StringAttr>(dims));
}

Type SymTensorType::parse(AsmParser &parser) {
  return parseLongType<SymTensorType>(parser);
}
Type SymMaskType::parse(AsmParser &parser) {
  return parseLongType<SymMaskType>(parser);
}

void SymTensorType::print(AsmPrinter &printer) const {
  printer << "<";
  printDims(printer, getDims());
  printer << ">";
}
void SymMaskType::print(AsmPrinter &printer) const {
  printer << "<";
  printDims(printer, getDims());
  printer << ">";
}

/// `[n, m]`, which may be empty.
static ParseResult parseDimList(AsmParser &parser,
                                SmallVectorImpl<StringAttr> &dims) {
  return parser.parseCommaSeparatedList(AsmParser::Delimiter::Square,
                                        [&] { return parseDim(parser, dims); });
}

static void printDimList(AsmPrinter &printer, ArrayRef<StringAttr> dims) {
  printer << "[";
  printDims(printer, dims);
  printer << "]";
}

LogicalResult BufferType::verify(function_ref<InFlightDiagnostic()> emitError,
                                 ArrayRef<StringAttr> dims, Type element) {
  if (element.isF32() || element.isF64() || element.isBF16() ||
      element.isF16() || element.isSignlessInteger(16) ||
      element.isSignlessInteger(64))
    return success();
  return emitError() << "buffer of " << element
                     << ", which is none of f32, f64, bf16, f16, i16, i64";
}

Type BufferType::parse(AsmParser &parser) {
  SmallVector<StringAttr> dims;
  Type element;
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseLess() || parseDimList(parser, dims) || parser.parseComma() ||
      parser.parseType(element) || parser.parseGreater())
    return {};
  return getChecked([&] { return parser.emitError(loc); }, parser.getContext(),
                    ArrayRef<StringAttr>(dims), element);
}

void BufferType::print(AsmPrinter &printer) const {
  printer << "<";
  printDimList(printer, getDims());
  printer << ", " << getElement() << ">";
}

SymTensorType BufferType::getShape() const {
  return SymTensorType::get(getContext(), getDims());
}

template <typename TypeT>
static Type parseReduced(AsmParser &parser) {
  SmallVector<StringAttr> dims, kept;
  StringRef word;
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseLess() || parser.parseKeyword(&word))
    return {};
  std::optional<Combiner> combiner = symbolizeCombiner(word);
  if (!combiner) {
    parser.emitError(loc, "'") << word << "' is not one of sum, amax";
    return {};
  }
  if (parser.parseComma() || parseDimList(parser, dims) ||
      parser.parseKeyword("to") || parseDimList(parser, kept) ||
      parser.parseGreater())
    return {};
  return TypeT::get(parser.getContext(), *combiner, dims, kept);
}

template <typename TypeT>
static void printReduced(AsmPrinter &printer, TypeT type) {
  printer << "<" << stringifyCombiner(type.getCombiner()) << ", ";
  printDimList(printer, type.getDims());
  printer << " to ";
  printDimList(printer, type.getKept());
  printer << ">";
}

Type PartialType::parse(AsmParser &parser) {
  return parseReduced<PartialType>(parser);
}
void PartialType::print(AsmPrinter &printer) const {
  printReduced(printer, *this);
}
Type ShareType::parse(AsmParser &parser) {
  return parseReduced<ShareType>(parser);
}
void ShareType::print(AsmPrinter &printer) const {
  printReduced(printer, *this);
}

SymTensorType PartialType::getShape() const {
  return SymTensorType::get(getContext(), getDims());
}
SymTensorType ShareType::getShape() const {
  return SymTensorType::get(getContext(), getDims());
}
SymTensorType PartialType::getKeptShape() const {
  return isWhole() ? SymTensorType()
                   : SymTensorType::get(getContext(), getKept());
}
SymTensorType ShareType::getKeptShape() const {
  return isWhole() ? SymTensorType()
                   : SymTensorType::get(getContext(), getKept());
}

ArrayRef<StringAttr> mlir::step::getDims(Type type) {
  if (auto buffer = dyn_cast<BufferType>(type))
    return buffer.getDims();
  if (auto tensor = dyn_cast<SymTensorType>(type))
    return tensor.getDims();
  if (auto mask = dyn_cast<SymMaskType>(type))
    return mask.getDims();
  return {};
}

bool mlir::step::isShaped(Type type) {
  return isa<SymTensorType, SymMaskType>(type);
}

LogicalResult mlir::step::broadcastDims(TypeRange types,
                                        SmallVectorImpl<StringAttr> &dims,
                                        bool &shaped) {
  shaped = false;
  dims.clear();
  for (Type type : types) {
    if (!isShaped(type))
      continue;
    ArrayRef<StringAttr> other = getDims(type);
    if (!shaped) {
      dims.append(other.begin(), other.end());
      shaped = true;
      continue;
    }
    if (other.size() != dims.size())
      return failure();
    for (auto [dim, otherDim] : llvm::zip(dims, other)) {
      if (dim == otherDim)
        continue;
      if (isBatch(dim) || isBatch(otherDim))
        return failure();
      if (otherDim.getValue() == "1")
        continue;
      if (dim.getValue() != "1")
        return failure();
      dim = otherDim;
    }
  }
  return success();
}

void mlir::step::printShort(AsmPrinter &printer, Type type) {
  if (!isShaped(type)) {
    printer << type;
    return;
  }
  printer << (isa<SymMaskType>(type) ? "mask[" : "[");
  printDims(printer, getDims(type));
  printer << "]";
}

ParseResult mlir::step::parseShort(AsmParser &parser, Type &type) {
  bool mask = succeeded(parser.parseOptionalKeyword("mask"));
  SMLoc loc = parser.getCurrentLocation();
  if (!mask && failed(parser.parseOptionalLSquare()))
    return parser.parseType(type);
  if (mask && parser.parseLSquare())
    return failure();
  SmallVector<StringAttr> dims;
  if (parser.parseCommaSeparatedList([&] { return parseDim(parser, dims); }) ||
      parser.parseRSquare())
    return failure();
  auto emitError = [&] { return parser.emitError(loc); };
  MLIRContext *context = parser.getContext();
  ArrayRef<StringAttr> dimsRef = dims;
  if (mask)
    type = SymMaskType::getChecked(emitError, context, dimsRef);
  else
    type = SymTensorType::getChecked(emitError, context, dimsRef);
  return success(bool(type));
}
