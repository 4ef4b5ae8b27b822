//===- Reassociation.h - what a reassociable reduction may be ---*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_DIALECT_REASSOCIATION_H
#define STEPC_DIALECT_REASSOCIATION_H

#include "dialect/Step.h"

namespace mlir::step {

/// What the reduction, which says `reassociable`, is computed as: a value made
/// of operations where the builder is. Null, and nothing is made, where it is
/// of no form that is known. The language says which these are; it is a matter
/// of the source as it is written, so that a definition has one result.
Value expandReassociable(OpBuilder &builder, ReductionOpInterface reduction);

} // namespace mlir::step

#endif // STEPC_DIALECT_REASSOCIATION_H
