//===- Rounding.cpp - the formats that values are kept in -----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/reference/Rounding.h"

#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/ErrorHandling.h"

#include <algorithm>
#include <cfenv>
#include <cmath>
#include <limits>

using namespace mlir::step::reference;

llvm::StringRef mlir::step::reference::getName(Format format) {
  switch (format) {
  case Format::F16:
    return "f16";
  case Format::BF16:
    return "bf16";
  case Format::F32:
    return "f32";
  case Format::F64:
    return "f64";
  case Format::I16:
    return "i16";
  }
  llvm_unreachable("not a format");
}

std::optional<Format> mlir::step::reference::parseFormat(llvm::StringRef name) {
  return llvm::StringSwitch<std::optional<Format>>(name)
      .Case("f16", Format::F16)
      .Case("bf16", Format::BF16)
      .Case("f32", Format::F32)
      .Case("f64", Format::F64)
      .Default(std::nullopt);
}

double mlir::step::reference::roundTo(Format format, double value) {
  if (format == Format::I16)
    return std::clamp(std::round(value), -32768.0, 32767.0);
  if (format == Format::F64 || value == 0.0 || !std::isfinite(value))
    return value;
  // bf16 and f32 have the same exponents and differ in the bits they keep.
  const bool isHalf = format == Format::F16;
  const int maxExponent = isHalf ? 15 : 127, minExponent = 1 - maxExponent;
  const int fractionBits = isHalf ? 10 : format == Format::F32 ? 23 : 7;

  // Scale the value so that its last kept bit is the unit, which is exact in
  // either direction, and round to an integer.
  int unit = std::max(std::ilogb(value), minExponent) - fractionBits;
  double rounded = std::scalbn(roundeven(std::scalbn(value, -unit)), unit);
  if (std::fabs(rounded) >= std::scalbn(1.0, maxExponent + 1))
    return std::copysign(std::numeric_limits<double>::infinity(), value);
  return rounded;
}

bool mlir::step::reference::hostIsInDefaultMode() {
  // Volatile, or the compiler answers for its own mode.
  volatile double normal = std::numeric_limits<double>::min();
  volatile double denormal = std::numeric_limits<double>::denorm_min();
  bool keepsDenormalResults = normal * 0.5 != 0.0;
  bool keepsDenormalOperands = denormal + denormal != 0.0;
  return std::fegetround() == FE_TONEAREST && keepsDenormalResults &&
         keepsDenormalOperands;
}
