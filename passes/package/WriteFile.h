//===- WriteFile.h - files that are whole, or an error --------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_PACKAGE_WRITEFILE_H
#define STEPC_PASSES_PACKAGE_WRITEFILE_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

namespace mlir::step {

/// Writes a file; `-` is standard output. A full disk is an error like any
/// other, and leaves no part of the file.
llvm::Error writeFile(llvm::StringRef path, llvm::StringRef bytes);

} // namespace mlir::step

#endif // STEPC_PASSES_PACKAGE_WRITEFILE_H
