//===- Passes.h - passes of Stepc, one by one -----------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_PASSES_H
#define STEPC_PASSES_PASSES_H

#include "dialect/Step.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

namespace mlir::arith {
class ArithDialect;
} // namespace mlir::arith
namespace mlir::func {
class FuncDialect;
} // namespace mlir::func
namespace mlir::LLVM {
class LLVMDialect;
} // namespace mlir::LLVM
namespace mlir::math {
class MathDialect;
} // namespace mlir::math
namespace mlir::memref {
class MemRefDialect;
} // namespace mlir::memref
namespace mlir::scf {
class SCFDialect;
} // namespace mlir::scf
namespace mlir::vector {
class VectorDialect;
} // namespace mlir::vector

namespace mlir::step {

#define GEN_PASS_DECL
#include "passes/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "passes/Passes.h.inc"

} // namespace mlir::step

#endif // STEPC_PASSES_PASSES_H
