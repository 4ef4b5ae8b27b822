//===- ComputeInLoops.h - registers that loops need not keep ----*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_PACKAGE_COMPUTEINLOOPS_H
#define STEPC_PASSES_PACKAGE_COMPUTEINLOOPS_H

namespace llvm {
class Module;
} // namespace llvm

namespace mlir::step {

/// In kernels of devices that say how many blocks are to fit: integers that a
/// few cheap operations make of one other value, such as some bits of the
/// thread's number or a count of leaves, are computed in the loops that use
/// them, innermost ones excepted, and not kept in registers all over these
/// loops. And where an innermost loop begins is hidden from the loop around it,
/// in which strength reduction would carry a pointer for each access of the
/// inner one. To be run behind LLVM's own passes, which move all of it out
/// again.
void computeInLoops(llvm::Module &module);

} // namespace mlir::step

#endif // STEPC_PASSES_PACKAGE_COMPUTEINLOOPS_H
