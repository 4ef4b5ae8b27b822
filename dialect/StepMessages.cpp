//===- StepMessages.cpp - what a parser says, in the language's words -----===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// MLIR's parser reads the operations of a body, and speaks of what it looked
// for: an operation's name in quotes, an SSA operand. While it reads a body of
// ours its messages come through here, in each tool and in the editor, and say
// what is wrong with the definition.
//
//===----------------------------------------------------------------------===//

#include "dialect/StepParsers.h"

#include "mlir/IR/Diagnostics.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"

using namespace mlir;
using namespace mlir::step;

static constexpr StringLiteral kUnclosed = "'{' is never closed";

/// How what the language has no operation for is written in it; empty where
/// that is not known.
static StringRef getOtherForm(StringRef name) {
  return llvm::StringSwitch<StringRef>(name)
      .Case("max", "step.maximum")
      .Case("min", "step.minimum")
      .Cases({"where", "if", "cond"}, "step.select CONDITION, A, B")
      .Cases({"clamp", "clip"}, "step.maximum and step.minimum")
      .Case("square", "step.mul %x, %x")
      .Case("rsqrt", "step.sqrt and step.div")
      .Case("norm", "step.mul, step.sum and step.sqrt")
      .Cases({"const", "number"}, "step.constant 0.5")
      .Cases({"lt", "le", "gt", "ge", "eq", "ne"}, "step.compare lt, %a, %b")
      .Cases({"exp2", "exp10"}, "step.pow")
      .Cases({"state", "param", "grad", "count"}, "an argument of the rule")
      .Default("");
}

/// The operation of the language whose name is the most like it; empty where
/// none is.
static std::string findNearest(MLIRContext *context, StringRef name) {
  std::string nearest;
  unsigned least = std::max<unsigned>(1, name.size() / 3) + 1;
  for (RegisteredOperationName op :
       context->getRegisteredOperationsByDialect("step")) {
    StringRef known = op.stripDialect();
    unsigned distance = name.edit_distance(known, true, least);
    if (distance < least) {
      least = distance;
      nearest = op.getStringRef().str();
    }
  }
  return nearest;
}

std::string mlir::step::describeUnknown(MLIRContext *context, StringRef name) {
  std::string text = ("'step." + name + "' is no operation").str();
  if (StringRef form = getOtherForm(name); !form.empty())
    return text + "; it is written " + form.str();
  if (std::string nearest = findNearest(context, name); !nearest.empty())
    return text + "; the nearest is " + nearest;
  return text;
}

std::string mlir::step::describeOther(MLIRContext *context, StringRef name) {
  std::string full = ("step." + name).str();
  if (RegisteredOperationName::lookup(full, context))
    return ("'" + name + "' is written " + full).str();
  return describeUnknown(context, name);
}

/// Whether the text ends at a token's place. Where a file is read in parts, a
/// comment is between them, and no token begins as one.
static bool isEnd(const char *place) {
  return !*place || StringRef(place, 2) == "//";
}

/// What stands before a quote.
static StringRef takeName(StringRef text) {
  return text.take_until([](char c) { return c == '\''; });
}

/// The last operation that is named on the line of what is before the place,
/// and empty where none is.
static StringRef getOperationBefore(const char *place, const char *begin) {
  while (place > begin && llvm::isSpace(place[-1]))
    --place;
  const char *line = place;
  while (line > begin && line[-1] != '\n')
    --line;
  StringRef text(line, place - line);
  size_t at = text.rfind("step.");
  if (at == StringRef::npos)
    return {};
  return text.substr(at).take_while(
      [](char c) { return llvm::isAlnum(c) || c == '.' || c == '_'; });
}

/// What stands at the place, up to the next space.
static StringRef getWord(const char *place) {
  const char *end = place;
  while (*end && !llvm::isSpace(*end) && end - place < 20)
    ++end;
  return StringRef(place, end - place);
}

/// Of something that begins no operation.
static std::string describeNoOperation(const char *place, const char *begin) {
  std::string found = "found '" + getWord(place).str() + "'";
  StringRef op = getOperationBefore(place, begin);
  if (op.empty())
    return "expected an operation, as in %x = step.add %a, %b : [*], " + found;
  if (*place == ':')
    return ("'" + op + "' is written without types, " + found).str();
  if (place[0] == '-' && place[1] == '>')
    return ("'" + op + "' is written without its result's type, " + found)
        .str();
  return ("expected the end of '" + op + "', " + found).str();
}

/// What MLIR's message means where it was met at `place`, in a body that begins
/// at `begin`; empty where the message is as it should be.
static std::string reword(MLIRContext *context, StringRef message,
                          const char *place, const char *begin) {
  StringRef op = getOperationBefore(place, begin);
  auto ofOperation = [&](StringRef what) {
    return op.empty() ? std::string() : ("'" + op + "' needs " + what).str();
  };
  if (message.contains("' is unknown") &&
      message.consume_front("custom op 'step."))
    return describeUnknown(context, takeName(message));
  if (message.consume_front("Dialect `' not found for custom op '"))
    return describeOther(context, takeName(message));
  if (message == "expected operation name in quotes")
    return isEnd(place) ? kUnclosed.str() : describeNoOperation(place, begin);
  if (message == "expected ':'")
    return ofOperation("the types of its operands, as ': [*], f64'");
  if (message == "expected non-function type")
    return ofOperation("a type here, as [*], [n, m], mask[*], f64 or i1");
  if (message == "expected ','")
    return ofOperation("one more operand, behind ','");
  if (message == "expected SSA operand")
    return "expected a value, as %x, found '" + getWord(place).str() +
           "'; a number is a value of step.constant";
  return "";
}

ParseResult mlir::step::parseBody(OpAsmParser &parser, Region &body,
                                  ArrayRef<OpAsmParser::Argument> arguments) {
  MLIRContext *context = parser.getContext();
  SMLoc begin = parser.getCurrentLocation();
  ScopedDiagnosticHandler handler(context, [&](Diagnostic &diagnostic) {
    const char *place = parser.getCurrentLocation().getPointer();
    std::string text =
        reword(context, diagnostic.str(), place, begin.getPointer());
    if (text.empty())
      return failure();
    // What is never closed is shown where it was opened.
    Location loc = text == kUnclosed ? parser.getEncodedSourceLoc(begin)
                                     : diagnostic.getLocation();
    diagnostic = Diagnostic(loc, diagnostic.getSeverity());
    diagnostic << text;
    return failure(); // to the tool's own
  });
  if (parser.parseRegion(body, arguments))
    return failure();
  if (body.empty())
    body.emplaceBlock();
  return success();
}
