//===- Compile.h - from a definition to a package -------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_PACKAGE_COMPILE_H
#define STEPC_PASSES_PACKAGE_COMPILE_H

#include "passes/Dialects.h"
#include "passes/Pipelines.h"
#include "passes/package/Manifest.h"

#include "llvm/Support/SourceMgr.h"

#include <functional>
#include <string>
#include <vector>

namespace mlir {
class PassManager;
} // namespace mlir

namespace mlir::step {

struct CompileOptions {
  std::vector<const Target *> targets = {getDefaultTarget()};
  std::string assembler;             // of cubins: the path of ptxas
  std::vector<std::string> variants; // requests; see VariantRequest
  Stage stopAfter = Stage::Package;
  std::string dumpDirectory; // empty: no dumps
  bool explains = false;
  bool reproducible = false;    // see step-reproduce-sums
  bool exclusiveWrites = false; // see step-carry-statistics
  /// Called with the passes of each stage before they run; may add to them.
  std::function<void(Stage, PassManager &)> extend;
};

struct StageTime {
  std::string name;
  double milliseconds;
};

struct CompileResult {
  std::string ir;      // after the last stage that ran, not for packages
  std::string package; // empty if the package stage did not run
  llvm::json::Object explanation; // if the options ask for it; see Explain.h
  std::vector<StageTime> times;
};

/// How the dialects of lowered programs become LLVM's IR.
void registerTranslations(DialectRegistry &registry);

/// In both functions the first buffer of `source` is the definition, and others
/// are files of fragments, in the order in which they are applied.

/// The interface of the definition as JSON text. Diagnostics go to the
/// context's handlers; those that are not about a place in the definition, as
/// of files that cannot be written, have an unknown location.
FailureOr<std::string> readInterface(llvm::SourceMgr &source,
                                     MLIRContext *context);

/// Runs the stages up to `options.stopAfter`. Diagnostics are as those of
/// readInterface.
FailureOr<CompileResult> compile(llvm::SourceMgr &source, MLIRContext *context,
                                 const CompileOptions &options);

} // namespace mlir::step

#endif // STEPC_PASSES_PACKAGE_COMPILE_H
