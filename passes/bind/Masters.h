//===- Masters.h - the f32 behind a parameter stored as bf16 ---*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_BIND_MASTERS_H
#define STEPC_PASSES_BIND_MASTERS_H

#include "mlir/Support/LLVM.h"

namespace mlir::step {

/// The attribute of a bound rule that says how its parameter's f32 is to be
/// kept, "f32" or "remainder", until step-keep-masters has seen to it.
constexpr StringLiteral kMaster = "master";

} // namespace mlir::step

#endif // STEPC_PASSES_BIND_MASTERS_H
