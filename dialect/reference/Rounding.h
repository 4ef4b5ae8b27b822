//===- Rounding.h - the formats that values are kept in ---------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_DIALECT_REFERENCE_ROUNDING_H
#define STEPC_DIALECT_REFERENCE_ROUNDING_H

#include "llvm/ADT/StringRef.h"

#include <optional>

namespace mlir::step::reference {

/// A floating-point format, narrowest first: every value of a format is also
/// one of each later format, but for F16 and BF16, of which neither has the
/// values of the other, and each is a double. I16 is of lower halves of f32
/// only: nothing else is rounded to it.
enum class Format { F16, BF16, F32, F64, I16 };

/// "f16", "bf16", "f32", "f64" or "i16".
llvm::StringRef getName(Format format);

/// The floating-point format of that name; none for any other word.
std::optional<Format> parseFormat(llvm::StringRef name);

/// The value of `format` nearest to `value`, ties to even, rounded once.
/// Denormals are kept, too large values become infinite, NaN stays NaN.
double roundTo(Format format, double value);

/// True where the host computes as IEEE 754 does by default: to nearest, with
/// denormals. Everything here takes that for granted.
bool hostIsInDefaultMode();

} // namespace mlir::step::reference

#endif // STEPC_DIALECT_REFERENCE_ROUNDING_H
