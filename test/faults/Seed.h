//===- Seed.h - what seeding a fault needs --------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_TEST_FAULTS_SEED_H
#define STEPC_TEST_FAULTS_SEED_H

#include "dialect/Step.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/Operation.h"

namespace mlir::step::faults {

/// Calls `seed` with the operations of a type in `root`, in order, until one
/// returns true; false if none does.
template <typename OpT, typename SeedT>
bool seedFirst(Operation *root, SeedT &&seed) {
  return root
      ->walk([&](OpT op) {
        return seed(op) ? WalkResult::interrupt() : WalkResult::advance();
      })
      .wasInterrupted();
}

/// The same in each operation of type ScopeT; false if none has a place.
template <typename ScopeT, typename OpT, typename SeedT>
bool seedFirstOfEach(Operation *root, SeedT &&seed) {
  bool any = false;
  root->walk([&](ScopeT scope) { any |= seedFirst<OpT>(scope, seed); });
  return any;
}

inline bool swapOperands(Operation *op, unsigned a = 0, unsigned b = 1) {
  Value first = op->getOperand(a), second = op->getOperand(b);
  if (first == second)
    return false;
  op->setOperand(a, second);
  op->setOperand(b, first);
  return true;
}

/// Uses of the result become uses of another value.
inline bool replaceBy(Operation *op, Value value) {
  op->getResult(0).replaceAllUsesWith(value);
  return true;
}

/// The operations of a type that a program has at its top.
template <typename OpT>
SmallVector<OpT> getAll(ProgramOp program) {
  return SmallVector<OpT>(program.getBody().getOps<OpT>());
}

/// The combiner that a reduction does not have.
inline Combiner getOther(Combiner combiner) {
  return combiner == Combiner::Sum ? Combiner::Amax : Combiner::Sum;
}

} // namespace mlir::step::faults

#endif // STEPC_TEST_FAULTS_SEED_H
