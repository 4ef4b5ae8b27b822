//===- Definition.h - definitions and packages ------------------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_TOOLS_STEPC_RUN_DEFINITION_H
#define STEPC_TOOLS_STEPC_RUN_DEFINITION_H

#include "Case.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/Support/FileUtilities.h"

#include "stepc/stepc.h"

#include <memory>

namespace stepc::run {

struct PackageDeleter {
  void operator()(StepcPackage *package) const { stepcPackageDestroy(package); }
};
using PackageHandle = std::unique_ptr<StepcPackage, PackageDeleter>;

/// An error with what the runtime said last on this thread.
llvm::Error makeRuntimeError(const llvm::Twine &doing);

/// One input file: a definition, or a package with its source.
class Definition {
public:
  /// Reads a .mlir or .stepc file, and files of fragments for a .mlir. What is
  /// wrong with a definition goes to stderr with file, line and column; the
  /// error returned then is short.
  static llvm::Expected<std::unique_ptr<Definition>>
  load(llvm::StringRef path, llvm::ArrayRef<std::string> fragments,
       mlir::MLIRContext &context);

  mlir::step::OptimizerOp getOptimizer() const { return optimizer; }

  /// The package that holds the variants that `prepared` needs: the file itself
  /// if it is one; else what `stepc`, found beside this program, makes of it,
  /// once for the same variants.
  llvm::Expected<StepcPackage *> getPackage(const PreparedCase &prepared);

private:
  llvm::Error parse(llvm::StringRef text, mlir::MLIRContext &context);
  llvm::Expected<PackageHandle> compile(llvm::ArrayRef<std::string> variants);

  std::string path;
  std::vector<std::string> fragments;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  mlir::step::OptimizerOp optimizer;
  /// By variants; a package file has one entry, "".
  std::map<std::string, PackageHandle> packages;
};

} // namespace stepc::run

#endif // STEPC_TOOLS_STEPC_RUN_DEFINITION_H
