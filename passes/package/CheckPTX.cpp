//===- CheckPTX.cpp - what device code may not be made of -----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/package/CodeGen.h"

#include "passes/lower/Products.h"

#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace mlir::step;

/// What is wrong with an instruction or a directive; null if nothing is.
/// Products alone have fused multiply-adds.
static const char *getFault(StringRef line, bool ofProduct) {
  if (line.contains(".approx"))
    return "is approximate";
  if (line.contains(".ftz"))
    return "flushes denormals";
  if (line.starts_with("mad.rn"))
    return "is a fused multiply-add";
  if (line.starts_with("fma.") && !(ofProduct && line.starts_with("fma.rn.")))
    return "is a fused multiply-add";
  // Without a rounding mode the assembler may fuse products and sums.
  for (StringRef name : {"add.f", "sub.f", "mul.f"})
    if (line.starts_with(name))
      return "may be fused, it has no rounding mode";
  if (line.starts_with(".extern"))
    return "is outside of the module";
  if (line.contains(".local"))
    return "is in local memory";
  if (line.starts_with("atom.") || line.starts_with("red."))
    return "has no fixed order";
  return nullptr;
}

llvm::Error mlir::step::checkPTX(StringRef text) {
  bool ofProduct = false;
  for (StringRef line : llvm::split(text, '\n')) {
    line = line.trim();
    // A predicate before the instruction.
    if (line.starts_with("@"))
      line = line.drop_until([](char c) { return llvm::isSpace(c); }).ltrim();
    if (line.starts_with("//"))
      continue;
    if (line.contains(".func ") || line.contains(".entry "))
      ofProduct = line.contains((".func " + kProductPrefix).str());
    if (const char *fault = getFault(line, ofProduct))
      return llvm::createStringError("the device's code has '" + line +
                                     "', which " + fault);
  }
  return llvm::Error::success();
}
