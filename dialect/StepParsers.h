//===- StepParsers.h - what parsers have in common -------------------- ===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_DIALECT_STEPPARSERS_H
#define STEPC_DIALECT_STEPPARSERS_H

#include "dialect/Step.h"

namespace mlir::step {

/// Parses a literal such as `1.0e-3`, `-0.0` or the bits `0x7FF0000000000000`.
ParseResult parseFloat(OpAsmParser &parser, FloatAttr &attr);

/// Parses the word of a predicate, such as `ge`.
ParseResult parsePredicate(OpAsmParser &parser, PredicateAttr &attr);

/// Parses the body of a definition, rule or scalars. What MLIR's parser says of
/// it is said in the words of the language.
ParseResult parseBody(OpAsmParser &parser, Region &body,
                      ArrayRef<OpAsmParser::Argument> arguments = {});

/// Prints scalar code, an operation a line; the brace ends the line of what is
/// yielded. parseCode reads it.
void printCode(OpAsmPrinter &printer, Operation *op, Region &body);
ParseResult parseCode(OpAsmParser &parser, Region &body);

/// One argument of a rule or a program while it is parsed.
struct ParsedRole {
  OpAsmParser::Argument argument;
  RoleAttr role;
};

/// Parses one argument and what is said of it, such as `%p: param[*]`,
/// `%m: state "exp_avg"[*] = 0.0 if %option as f32`, `%t: count`,
/// `%f: fresh("exp_avg")`. A tensor's type is a `!step.tensor`.
ParseResult parseRole(OpAsmParser &parser, ParsedRole &parsed,
                      SmallVectorImpl<OpAsmParser::UnresolvedOperand> &guards);

/// Prints one role as parseRole reads it; of a program's buffer the dims.
/// `guard` is null where there is none.
void printRole(OpAsmPrinter &printer, BlockArgument argument, RoleAttr role,
               Value guard);

/// What is said of an operation that the dialect does not have, by its name
/// without the dialect's: what is written in its place, or the nearest one.
std::string describeUnknown(MLIRContext *context, StringRef name);

/// The same of a name without a dialect, which may be one that has lost it.
std::string describeOther(MLIRContext *context, StringRef name);

} // namespace mlir::step

#endif // STEPC_DIALECT_STEPPARSERS_H
