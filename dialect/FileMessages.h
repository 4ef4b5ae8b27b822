//===- FileMessages.h - what is said of a file that is parsed ---*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_DIALECT_FILEMESSAGES_H
#define STEPC_DIALECT_FILEMESSAGES_H

#include "mlir/IR/Diagnostics.h"
#include "llvm/Support/SourceMgr.h"

namespace mlir::step {

/// While one lives, what MLIR's parser says of a file as a whole is said in the
/// words of the language: of its outermost operations, and of values that are
/// used and that nobody defines, which it finds when all is read.
class FileMessages {
public:
  /// The first buffer of `sources` is parsed.
  FileMessages(const llvm::SourceMgr &sources, MLIRContext *context);

private:
  ScopedDiagnosticHandler handler;
};

} // namespace mlir::step

#endif // STEPC_DIALECT_FILEMESSAGES_H
