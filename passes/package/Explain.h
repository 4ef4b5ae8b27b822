//===- Explain.h - what a compiled step does, in words and as a picture ---===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_PACKAGE_EXPLAIN_H
#define STEPC_PASSES_PACKAGE_EXPLAIN_H

#include "passes/package/ExplainModel.h"

namespace mlir::step {

/// For each variant, in the order in which they run, its kernels, finishes and
/// rounds: what they compute, read and write, and the bytes per parameter
/// against the least possible.
std::string explainAsText(const ExplainModel &model);

/// The same as one SVG picture that needs no other file: a lane for each thing
/// in memory, a column for each kernel, finish and round.
std::string explainAsSvg(const ExplainModel &model);

} // namespace mlir::step

#endif // STEPC_PASSES_PACKAGE_EXPLAIN_H
