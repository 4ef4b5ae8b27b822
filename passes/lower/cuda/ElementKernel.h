//===- ElementKernel.h - device kernels of the elements space ---*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_LOWER_CUDA_ELEMENTKERNEL_H
#define STEPC_PASSES_LOWER_CUDA_ELEMENTKERNEL_H

#include "passes/lower/BodyEmitter.h"

namespace mlir::step {

/// The widest access of a thread, in bytes.
inline constexpr int64_t kAccessBytes = 16;

/// Whether addresses, combined by `or`, are multiples of it.
Value isAligned(const Words &w, Value bits);

/// Makes the entry points of a phase of elements, `name` and `name_strided`,
/// and the device functions that they call. The insertion point is in a
/// gpu.module.
void emitElementKernels(OpBuilder &builder, TraverseOp traverse,
                        const ProgramStorage &storage);

} // namespace mlir::step

#endif // STEPC_PASSES_LOWER_CUDA_ELEMENTKERNEL_H
