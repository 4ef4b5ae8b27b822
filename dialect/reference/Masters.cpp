//===- Masters.cpp - the f32 behind a parameter stored as bf16 ------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/reference/Masters.h"

#include "llvm/ADT/StringSwitch.h"
#include "llvm/ADT/bit.h"

#include <cmath>
#include <limits>

using namespace mlir::step::reference;

std::optional<Master> mlir::step::reference::parseMaster(llvm::StringRef name) {
  return llvm::StringSwitch<std::optional<Master>>(name)
      .Case("f32", Master::F32)
      .Case("remainder", Master::Remainder)
      .Default(std::nullopt);
}

llvm::StringRef mlir::step::reference::getName(Master master) {
  return master == Master::F32         ? "f32"
         : master == Master::Remainder ? "remainder"
                                       : "";
}

llvm::StringRef mlir::step::reference::getStateName(Master master) {
  return master == Master::F32 ? "master" : getName(master);
}

Format mlir::step::reference::getStateFormat(Master master) {
  return master == Master::Remainder ? Format::I16 : Format::F32;
}

/// As sign and magnitude, so adding to the bits moves away from zero.
static uint32_t getBits(double value) {
  return llvm::bit_cast<uint32_t>(static_cast<float>(value));
}

double mlir::step::reference::getUpperHalf(double value) {
  if (std::isnan(value))
    return std::numeric_limits<double>::quiet_NaN();
  uint32_t bits = getBits(value);
  uint32_t truncated = bits & 0xffff0000u;
  bool isUp = (bits & 0xffffu) >= 0x8000u;
  return llvm::bit_cast<float>(isUp ? truncated + 0x10000u : truncated);
}

double mlir::step::reference::roundToParam(Format param, double value) {
  return param == Format::BF16 ? getUpperHalf(value) : roundTo(param, value);
}

double mlir::step::reference::getLowerHalf(double value) {
  if (std::isnan(value))
    return 0.0;
  int64_t whole = getBits(value);
  return static_cast<double>(whole - int64_t(getBits(getUpperHalf(value))));
}

double mlir::step::reference::joinHalves(double upper, double lower) {
  uint32_t rest = static_cast<uint32_t>(static_cast<int64_t>(lower));
  float whole = llvm::bit_cast<float>(getBits(upper) + rest);
  return std::isnan(whole) ? upper : whole;
}

Tensor mlir::step::reference::getMaster(Master master, Format storage,
                                        const Tensor &param,
                                        const Tensor &state, bool fresh) {
  Tensor result = param;
  for (size_t i = 0; i < result.elements.size(); ++i) {
    double &element = result.elements[i];
    if (master == Master::Remainder)
      element = joinHalves(element, state.elements[i]);
    else if (!fresh && roundToParam(storage, state.elements[i]) == element)
      element = state.elements[i];
  }
  return result;
}
