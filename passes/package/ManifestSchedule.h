//===- ManifestSchedule.h - a program's schedule as data ------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_PACKAGE_MANIFESTSCHEDULE_H
#define STEPC_PASSES_PACKAGE_MANIFESTSCHEDULE_H

#include "passes/schedule/ProgramStorage.h"

#include "llvm/Support/JSON.h"

namespace mlir::step {

/// Strings as a list; an empty one for a null attribute.
llvm::json::Array toJson(ArrayAttr names);

/// The entries of the program's schedule (docs/abi.md): kernels and finishes,
/// what ranks exchange in the round behind each segment, and what each entry
/// waits for.
llvm::json::Array describeSchedule(OptimizerOp optimizer,
                                   const ProgramStorage &storage);

} // namespace mlir::step

#endif // STEPC_PASSES_PACKAGE_MANIFESTSCHEDULE_H
