//===- Mangle.h - names of functions ----------------------------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_MANGLE_H
#define STEPC_PASSES_MANGLE_H

#include "llvm/ADT/StringRef.h"

#include <string>

namespace mlir::step {

/// A name of a definition as that of a function, which object files and PTX
/// take: letters, digits and underscores stay, each other byte is `$` and its
/// two digits, and so is a digit that the name begins with. "sgd-1" is
/// "sgd$2D1". Different names are different functions.
std::string mangle(llvm::StringRef name);

} // namespace mlir::step

#endif // STEPC_PASSES_MANGLE_H
