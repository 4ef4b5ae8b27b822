//===- Passes.td - passes of Stepc ----------------------------*- tablegen -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEP_PASSES
#define STEP_PASSES

include "mlir/Pass/PassBase.td"

#endif // STEP_PASSES
