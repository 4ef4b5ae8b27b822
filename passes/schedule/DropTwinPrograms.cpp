//===- DropTwinPrograms.cpp - step-drop-twin-programs ---------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/Passes.h"

namespace mlir::step {
#define GEN_PASS_DEF_DROPTWINPROGRAMS
#include "passes/Passes.h.inc"
} // namespace mlir::step

using namespace mlir;
using namespace mlir::step;

/// A variant without reductions is the same in any layout.
static bool areTwins(ProgramOp program, ProgramOp other) {
  return program.getElementwise() && other.getElementwise() &&
         program.getVariant() == other.getVariant() &&
         program.getRoles() == other.getRoles();
}

namespace {
struct DropTwinPrograms : step::impl::DropTwinProgramsBase<DropTwinPrograms> {
  void runOnOperation() override {
    SmallVector<ProgramOp> kept;
    for (auto program : llvm::make_early_inc_range(
             getOperation().getBody().getOps<ProgramOp>())) {
      bool known = llvm::any_of(
          kept, [&](ProgramOp other) { return areTwins(program, other); });
      if (known)
        program.erase();
      else
        kept.push_back(program);
    }
  }
};
} // namespace
