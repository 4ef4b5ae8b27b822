//===- UnlessFlags.h - what is left out where nobody needs it --*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_BIND_UNLESSFLAGS_H
#define STEPC_PASSES_BIND_UNLESSFLAGS_H

#include "dialect/Step.h"

namespace mlir::step {

/// When nobody needs a value: where the flag is `holds`. Without a flag it is
/// always needed.
struct Unneeded {
  Value flag;
  bool holds = false;

  bool operator==(const Unneeded &other) const {
    return flag == other.flag && holds == other.holds;
  }
};

/// When a select does not take this operand of it: where it takes the other.
Unneeded getOtherSide(OpOperand &use);

/// When no use needs the value; `ofUse` says it of one.
Unneeded getUnneeded(Value value, function_ref<Unneeded(OpOperand &)> ofUse);

/// When each value of a rule is not needed: found from its last operation to
/// its first. Invariant meanwhile: `found` has the values of all operations
/// behind the one at hand that are not needed under some flag, which is known
/// before the step; others always are.
class Needs {
public:
  explicit Needs(RuleOp rule);

  /// Without a flag where it is always needed.
  Unneeded lookup(Value value) const { return found.lookup(value); }

private:
  Unneeded ofUse(OpOperand &use) const;

  DenseMap<Value, Unneeded> found;
};

/// In one of how many steps a flag that is known before them has this value,
/// as the definition says it: where it is a step.every of a hyper-parameter,
/// that one's default, and where it is an option, this one's. 0: in those alone
/// that create a state, or in none.
int64_t getPeriod(Value flag, bool value);

/// The i1 that says in front of the operation that it is not needed.
Value makeUnless(const Unneeded &unneeded, Operation *op);

} // namespace mlir::step

#endif // STEPC_PASSES_BIND_UNLESSFLAGS_H
