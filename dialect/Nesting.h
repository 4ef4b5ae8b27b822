//===- Nesting.h - how deep a source may nest -------------------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_DIALECT_NESTING_H
#define STEPC_DIALECT_NESTING_H

#include "mlir/IR/MLIRContext.h"
#include "llvm/Support/LogicalResult.h"
#include "llvm/Support/SourceMgr.h"

namespace mlir::step {

/// How many brackets may be open at a place of a source. A definition has four;
/// parsers need a piece of the stack for each.
inline constexpr int64_t kMostNested = 256;

/// Refuses a source, buffer number `id`, that nests deeper, with the place.
LogicalResult checkNesting(const llvm::SourceMgr &sources, unsigned id,
                           MLIRContext *context);

} // namespace mlir::step

#endif // STEPC_DIALECT_NESTING_H
