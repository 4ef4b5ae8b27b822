//===- Explain.h - what a compiled step does, in words --------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_PACKAGE_EXPLAIN_H
#define STEPC_PASSES_PACKAGE_EXPLAIN_H

#include "dialect/Step.h"

namespace mlir::step {

/// A report on the optimizer after the schedule stage: for each variant its
/// kernels, the operations fused into each, and the bytes that they read and
/// write per element of the parameter, against the least possible, which is
/// each operand that is needed once.
std::string explain(OptimizerOp scheduled);

} // namespace mlir::step

#endif // STEPC_PASSES_PACKAGE_EXPLAIN_H
