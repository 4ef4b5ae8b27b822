//===- ExplainWork.h - what products cost, as explained -------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_PACKAGE_EXPLAINWORK_H
#define STEPC_PASSES_PACKAGE_EXPLAINWORK_H

#include "dialect/Step.h"

#include "llvm/Support/JSON.h"

namespace mlir::step {

/// The products and decompositions among these operations of the program, in
/// their order; those alike are one, with their `count`. FLOPs and bytes of one
/// are formulas of the rule's extents, of all matrices of the tensor.
llvm::json::Array describeWork(ProgramOp program, ArrayRef<Operation *> ops);

/// What all of the program's cost together, for each set of steps that makes
/// them: those of every step first, those that create a state last.
llvm::json::Array describeWorkOfAll(ProgramOp program);

} // namespace mlir::step

#endif // STEPC_PASSES_PACKAGE_EXPLAINWORK_H
