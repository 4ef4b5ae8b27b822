//===- BodyEmitter.h - the body of a traversal ------------------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_LOWER_BODYEMITTER_H
#define STEPC_PASSES_LOWER_BODYEMITTER_H

#include "passes/lower/Operand.h"
#include "passes/lower/Words.h"
#include "passes/schedule/ProgramStorage.h"

#include "mlir/IR/IRMapping.h"

namespace mlir::step {

/// The size of a cache line, the unit of prefetching, in bytes.
inline constexpr int64_t kLineBytes = 64;

/// What is known of an access by vectors.
struct AccessHints {
  /// Not used again soon: caches may drop it first.
  bool nontemporal = false;
  /// Of the address, in bytes; that of an element where none is given.
  llvm::MaybeAlign alignment;
};

/// Loads the element, or the vector of `lanes` elements, number `index` from
/// `address`: in the storage type.
Value emitLoad(const Words &w, Type storage, int64_t lanes, Value address,
               Value index, AccessHints hints = {});

/// Element `index` of an operand, or a vector of `lanes`, at an address: what
/// is there in memory, or, of the position, what the address itself says.
Value emitElement(const Words &w, const Operand &operand, int64_t lanes,
                  Value address, Value index, AccessHints hints = {});

/// Stores such a value. One element for a vector stands for all of them.
void emitStore(const Words &w, Type storage, int64_t lanes, Value value,
               Value address, Value index, AccessHints hints = {});

/// The scalar of the program, from the slot of the row at the address `cohort`
/// or of the tensor at `tensor`, in which an f64 stands for any type. Constants
/// are made anew.
Value emitScalar(const Words &w, const ProgramStorage &storage, Value scalar,
                 Value cohort, Value tensor);

/// The scalar as an f64 of a slot.
Value emitSlot(const Words &w, Value scalar);

/// Emits the body of one traversal for one element or one vector of elements.
///
/// State: `fixed` maps every value of the body that depends on scalars and
/// operands given to `fix` alone; those are emitted once, outside of inner
/// loops. What remains is cloned for each element type, a vector of `lanes`
/// elements or, for 0 lanes, a scalar.
class BodyEmitter {
public:
  BodyEmitter(OpBuilder &builder, TraverseOp traverse,
              const ProgramStorage &storage);

  ArrayRef<Operand> getOperands() const { return operands; }

  /// Loads the scalars from the slots at the addresses. `tensor` may be null
  /// where none are the tensor's.
  void fixScalars(Value cohort, Value tensor);
  /// `elements`: for each operand its element, or null where it changes in the
  /// inner loop or is not read.
  void fixOperands(ArrayRef<Value> elements);

  struct Callbacks {
    /// The element of an operand, in storage type.
    function_ref<Value(unsigned)> load;
    /// The new element of an operand.
    function_ref<void(unsigned, Value)> store;
    /// What an accumulator adds.
    function_ref<void(unsigned, Value)> accumulate;
  };
  void emit(int64_t lanes, const Callbacks &callbacks);

private:
  void emitFixed();
  Operation *cloneFor(int64_t lanes, Operation &op, IRMapping &mapping);

  OpBuilder &builder;
  TraverseOp traverse;
  const ProgramStorage &storage;
  SmallVector<Operand> operands;
  SmallVector<Accumulator> accumulators;
  IRMapping fixed;
};

} // namespace mlir::step

#endif // STEPC_PASSES_LOWER_BODYEMITTER_H
