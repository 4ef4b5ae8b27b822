//===- Mangle.cpp - names of functions ------------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/Mangle.h"

#include "llvm/ADT/StringExtras.h"

std::string mlir::step::mangle(llvm::StringRef name) {
  std::string symbol;
  for (char c : name) {
    bool isFirst = symbol.empty();
    if (c == '_' || llvm::isAlpha(c) || (llvm::isDigit(c) && !isFirst))
      symbol.push_back(c);
    else
      symbol += "$" + llvm::toHex(llvm::StringRef(&c, 1));
  }
  return symbol;
}
