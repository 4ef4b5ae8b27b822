//===- EngineKernels.h - kernels of the engine itself -----------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_LOWER_CUDA_ENGINEKERNELS_H
#define STEPC_PASSES_LOWER_CUDA_ENGINEKERNELS_H

#include "passes/lower/Words.h"

namespace mlir::step {

/// Makes the entry points that an engine launches besides those of phases and
/// functions: those named in stepc/kernel_abi.h. The insertion point is in a
/// gpu.module.
void emitEngineKernels(const Words &w);
/// Those of carried scalars, which are among them.
void emitCarriedKernels(const Words &w);
/// Those of what crosses ranks, where a program of the module has a transfer.
void emitTransferKernels(const Words &w, ModuleOp module);
/// Those of states that are kept as codes, where a program has a state of f32.
void emitCodeKernels(const Words &w, ModuleOp module);

} // namespace mlir::step

#endif // STEPC_PASSES_LOWER_CUDA_ENGINEKERNELS_H
