//===- RuleChoice.h - which rule a parameter takes ----------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_DIALECT_REFERENCE_RULECHOICE_H
#define STEPC_DIALECT_REFERENCE_RULECHOICE_H

#include "dialect/reference/Environment.h"
#include "dialect/reference/Shapes.h"

namespace mlir::step::reference {

/// The rule for a parameter of this shape: the one named, or the first that the
/// shape fits and whose conditions hold. `group` has the options.
llvm::Expected<RuleOp> chooseRule(const Source &source, StringRef name,
                                  ArrayRef<int64_t> shape, const Frame &group);

} // namespace mlir::step::reference

#endif // STEPC_DIALECT_REFERENCE_RULECHOICE_H
