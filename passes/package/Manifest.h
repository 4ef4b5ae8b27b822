//===- Manifest.h - what a package says about itself ----------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_PACKAGE_MANIFEST_H
#define STEPC_PASSES_PACKAGE_MANIFEST_H

#include "dialect/Step.h"
#include "passes/package/Target.h"

#include "mlir/IR/BuiltinOps.h"
#include "llvm/Support/JSON.h"

namespace mlir::step {

/// The interface of a definition (before it is bound): hyper-parameters,
/// options, rules and their states. docs/abi.md describes the members.
llvm::json::Object buildInterface(OptimizerOp optimizer);

/// The interface completed by the variants of `scheduled`, the optimizer after
/// the schedule stage, and the code for `targets`.
llvm::json::Object buildManifest(llvm::json::Object interface,
                                 OptimizerOp scheduled,
                                 ArrayRef<const Target *> targets);

/// JSON text, indented, members in a fixed order; ends in a newline.
std::string toText(llvm::json::Object object);

} // namespace mlir::step

#endif // STEPC_PASSES_PACKAGE_MANIFEST_H
