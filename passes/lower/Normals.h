//===- Normals.h - random numbers in a finish -------------------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_LOWER_NORMALS_H
#define STEPC_PASSES_LOWER_NORMALS_H

#include "passes/lower/TileRow.h"

namespace mlir::step {

class FinishPolicy;

/// Fills the result of a step.normals.
void emitNormals(const Words &w, const TileRow &row, const FinishPolicy &policy,
                 NormalsOp op);

} // namespace mlir::step

#endif // STEPC_PASSES_LOWER_NORMALS_H
