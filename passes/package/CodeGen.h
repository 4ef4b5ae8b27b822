//===- CodeGen.h - object code and shared objects -------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_PACKAGE_CODEGEN_H
#define STEPC_PASSES_PACKAGE_CODEGEN_H

#include "passes/package/Manifest.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "llvm/Support/Error.h"

#include <vector>

namespace mlir::step {

using ObjectFiles = std::vector<llvm::SmallVector<char, 0>>;

/// Object code of a module in the LLVM dialect, in some parts, which are
/// compiled side by side. Loops are vectorized already, and nothing may be
/// contracted or turned into a call of a library function.
llvm::Expected<ObjectFiles> generateObjects(ModuleOp module,
                                            const Target &target);

/// The text of a device's module in the LLVM and NVVM dialects, of which the
/// same holds.
llvm::Expected<std::string> generatePTX(gpu::GPUModuleOp module,
                                        const Target &target);

/// Refuses text that computes otherwise than the definition says, that needs
/// anything outside of it, or that keeps values in local memory.
llvm::Error checkPTX(StringRef text);

/// The cubin that the assembler, a program, makes of the text.
llvm::Expected<std::string> assemblePTX(StringRef ptx, const Target &target,
                                        StringRef assembler);

/// Links objects into a shared object, with lld as a library. lld resets the
/// process's command-line options: read them before.
llvm::Expected<std::string> linkSharedObject(const ObjectFiles &objects);

/// Refuses a shared object that would need or run anything when it is loaded:
/// undefined symbols, needed libraries, initializers, writable code.
llvm::Error checkSharedObject(StringRef bytes);

} // namespace mlir::step

#endif // STEPC_PASSES_PACKAGE_CODEGEN_H
