//===- ViewToLLVM.h - memory by address in the LLVM dialect -----*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_LOWER_VIEWTOLLVM_H
#define STEPC_PASSES_LOWER_VIEWTOLLVM_H

namespace mlir {
class LLVMTypeConverter;
class RewritePatternSet;
} // namespace mlir

namespace mlir::step {

/// The conversion of `step.view`: the address becomes the pointer of a memref's
/// descriptor. With an address space that is not 0 it is a pointer of that
/// space, cast to a generic one; the code generator finds the space again.
void populateViewPatterns(const LLVMTypeConverter &converter,
                          RewritePatternSet &patterns, unsigned addressSpace);

} // namespace mlir::step

#endif // STEPC_PASSES_LOWER_VIEWTOLLVM_H
