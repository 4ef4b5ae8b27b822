//===- stepc-opt.cpp - runs passes on step programs --------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/Nesting.h"
#include "passes/Dialects.h"
#include "passes/Pipelines.h"

#include "mlir/IR/DialectRegistry.h"
#include "mlir/Support/FileUtilities.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "mlir/Transforms/Passes.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/ToolOutputFile.h"

/// Runs what the command line says on one file.
static mlir::LogicalResult run(int argc, char **argv,
                               mlir::DialectRegistry &registry) {
  auto [input, output] = mlir::registerAndParseCLIOptions(
      argc, argv,
      "stepc-opt: the passes of Stepc and the transforms of MLIR, by name\n",
      registry);
  std::string message;
  auto file = mlir::openInputFile(input, &message);
  auto out = file ? mlir::openOutputFile(output, &message) : nullptr;
  if (!out) {
    llvm::errs() << message << "\n";
    return mlir::failure();
  }
  llvm::SourceMgr sources;
  unsigned id = sources.AddNewSourceBuffer(
      llvm::MemoryBuffer::getMemBuffer(file->getMemBufferRef()), {});
  mlir::MLIRContext context;
  mlir::SourceMgrDiagnosticHandler handler(sources, &context);
  if (failed(mlir::step::checkNesting(sources, id, &context)) ||
      failed(mlir::MlirOptMain(out->os(), std::move(file), registry,
                               mlir::MlirOptMainConfig::createFromCLOptions())))
    return mlir::failure();
  out->keep();
  return mlir::success();
}

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  mlir::DialectRegistry registry;
  mlir::step::registerDialects(registry);
  mlir::step::registerPassesAndPipelines();
  mlir::registerTransformsPasses();
  return mlir::asMainReturnCode(run(argc, argv, registry));
}
