//===- ShareKernels.cpp - step-share-kernels ------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/Passes.h"

namespace mlir::step {
#define GEN_PASS_DEF_SHAREKERNELS
#include "passes/Passes.h.inc"
} // namespace mlir::step

using namespace mlir;
using namespace mlir::step;

/// Programs are made of rules of one definition, by passes that look at nothing
/// else than this and the exchanges.
static bool doTheSame(ProgramOp program, ProgramOp other) {
  VariantAttr own = program.getVariant(), others = other.getVariant();
  return program.getRoles() == other.getRoles() &&
         program.getElementwise() == other.getElementwise() &&
         own.getRule() == others.getRule() &&
         own.getOptions() == others.getOptions() &&
         own.getCompute() == others.getCompute() &&
         (program.getElementwise() || own.getLayout() == others.getLayout());
}

/// Functions have the program's name in front.
static void useFunctions(ProgramOp program, ProgramOp of) {
  auto rename = [&](auto op) {
    StringRef name = op.getSymName();
    name.consume_front(program.getSymName());
    op.setSymName((of.getSymName() + name).str());
  };
  for (auto op : program.getBody().getOps<TraverseOp>())
    rename(op);
  for (auto op : program.getBody().getOps<CohortScalarsOp>())
    rename(op);
  program.setKernelsOf(of.getSymName());
}

namespace {
struct ShareKernels : step::impl::ShareKernelsBase<ShareKernels> {
  void runOnOperation() override {
    SmallVector<ProgramOp> first;
    for (auto program : getOperation().getBody().getOps<ProgramOp>()) {
      auto known = llvm::find_if(
          first, [&](ProgramOp other) { return doTheSame(program, other); });
      if (known == first.end())
        first.push_back(program);
      else
        useFunctions(program, *known);
    }
  }
};
} // namespace
