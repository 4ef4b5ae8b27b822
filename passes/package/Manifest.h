//===- Manifest.h - what a package says about itself ----------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_PACKAGE_MANIFEST_H
#define STEPC_PASSES_PACKAGE_MANIFEST_H

#include "dialect/Step.h"

#include "mlir/IR/BuiltinOps.h"
#include "llvm/Support/JSON.h"

namespace mlir::step {

/// A processor that code is made for.
struct Target {
  StringRef name;                  // in manifests and on the command line
  StringRef cpu, features;         // for LLVM
  ArrayRef<StringRef> cpuFeatures; // what a processor needs to run the code
};

/// The target of that name; null if there is none. `cpu` is x86-64-v3.
const Target *findTarget(StringRef name);

/// The interface of a definition (before it is bound): hyper-parameters,
/// options, rules and their states. docs/abi.md describes the members.
llvm::json::Object buildInterface(OptimizerOp optimizer);

/// The interface completed by the variants of `scheduled`, the optimizer after
/// the schedule stage, and the code for `target`.
llvm::json::Object buildManifest(llvm::json::Object interface,
                                 OptimizerOp scheduled, const Target &target);

/// JSON text, indented, members in a fixed order; ends in a newline.
std::string toText(llvm::json::Object object);

} // namespace mlir::step

#endif // STEPC_PASSES_PACKAGE_MANIFEST_H
