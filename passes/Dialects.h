//===- Dialects.h - what IR of the stages is made of ----------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_DIALECTS_H
#define STEPC_PASSES_DIALECTS_H

namespace mlir {
class DialectRegistry;
} // namespace mlir

namespace mlir::step {

/// The dialects that definitions are parsed in and that any stage leaves.
void registerDialects(DialectRegistry &registry);

} // namespace mlir::step

#endif // STEPC_PASSES_DIALECTS_H
