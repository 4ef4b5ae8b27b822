//===- stepc-lsp-server.cpp - definitions in an editor -----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "passes/Dialects.h"

#include "mlir/IR/DialectRegistry.h"
#include "mlir/Tools/mlir-lsp-server/MlirLspServerMain.h"
#include "llvm/Support/thread.h"

#include <optional>

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  mlir::step::registerDialects(registry);
  // Parsers recurse. What an editor sends has not been looked at before, as the
  // other tools look at their files, so the stack is for any text.
  constexpr std::optional<unsigned> kStack = 1u << 30;
  bool failed = false;
  llvm::thread server(kStack, [&] {
    failed = mlir::failed(mlir::MlirLspServerMain(argc, argv, registry));
  });
  server.join();
  return failed ? 1 : 0;
}
