//===- ProgramStorage.h - where the values of a program lie -----*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_SCHEDULE_PROGRAMSTORAGE_H
#define STEPC_PASSES_SCHEDULE_PROGRAMSTORAGE_H

#include "passes/ParamDims.h"

#include "llvm/ADT/MapVector.h"

#include <optional>

namespace mlir::step {

/// Who has a buffer (runtime/core/Manifest.h).
enum class BufferUse { All, Packed, Routine, Record, Handed };

/// A buffer of a program's workspace.
struct WorkspaceBuffer {
  std::string name;
  /// A product (docs/statistics.md) of dims of the rule, "n", or of so many
  /// elements of one, "m/1024", or of what a flat range touches; empty for one
  /// element.
  SmallVector<std::string> size;
  Type element;
  /// Kept from one segment to a later one.
  bool live = false;
  /// How many elements side by side an entry is.
  int64_t width = 1;
  /// The round that combines it over ranks, and which of its shares it is; null
  /// where none does.
  ExchangeOp exchange;
  unsigned share = 0;
  BufferUse use = BufferUse::All;
};

/// The buffers, by their places in the workspace, into which a processor packs
/// the operands of a product: panels of the right one, `STEPC_PACKED_ROWS` rows
/// of the left one. Products of the same extents share them. Devices have none.
struct ProductMemory {
  int64_t panels, packed;
};

/// The buffers of f64 that a routine works in, in the order of its arguments:
/// the first is what it is given. Those of the same extents share them.
using RoutineMemory = SmallVector<int64_t, 3>;

/// The buffers by which a device has the host do it: the record of the call,
/// one for all, and what is handed over, of all matrices.
struct HandedMemory {
  int64_t record, matrices;
  /// Of eigenvalues, where they are asked for.
  std::optional<int64_t> values;
};

/// Of what elements these matrices are: of those that hold the operand's and
/// the result's.
Type getHandedType(RoutineOpInterface op);

/// Where the values of a program lie: the one numbering that lowering, the
/// manifest and explanations share.
///
/// - A result of step.cohort_scalars has a slot of the cohort's row: results
///   are numbered through all of them.
/// - A scalar of the tensor has a slot of the tensor where something else than
///   the scalar operations beside it uses it: of
///
///     %a = step.combine ... -> f64          slot 0
///     %b = arith.mulf %a, %a : f64          no slot
///     %c = arith.addf %b, %a : f64          slot 1
///     ... = step.traverse ... { ... %c ... }
///
/// - Vectors, partial results and shares have a buffer of the workspace; of
///   what was written, kept or received the one that it had before. In a
///   program with products, whose buffers are large, one that is not used any
///   more is the next one's of that size.
class ProgramStorage {
public:
  explicit ProgramStorage(ProgramOp program);

  ProgramOp getProgram() const { return program; }
  const ParamDims &getParamDims() const { return dims; }

  std::optional<int64_t> getCohortSlot(Value value) const {
    return find(cohortSlots, value);
  }
  std::optional<int64_t> getTensorSlot(Value value) const {
    return find(tensorSlots, value);
  }
  int64_t getNumTensorSlots() const { return tensorSlots.size(); }

  ArrayRef<WorkspaceBuffer> getWorkspace() const { return workspace; }
  /// The place in the workspace of a vector, partial result or share.
  int64_t getBufferIndex(Value value) const;
  ProductMemory getProductMemory(ProductOp product) const {
    return products.lookup(product);
  }
  ArrayRef<int64_t> getRoutineMemory(RoutineOpInterface op) const {
    return routines.find(op)->second;
  }
  HandedMemory getHandedMemory(RoutineOpInterface op) const {
    return handed.lookup(op);
  }
  StringRef getBufferName(Value value) const {
    return workspace[getBufferIndex(value)].name;
  }

private:
  using Numbers = llvm::MapVector<Value, int64_t>;
  static std::optional<int64_t> find(const Numbers &numbers, Value value) {
    auto found = numbers.find(value);
    return found == numbers.end() ? std::nullopt : std::optional(found->second);
  }
  void numberCohort();
  void numberTensor();
  void addPartials();
  int64_t findOrAdd(StringRef prefix, ArrayRef<std::string> size, Type element,
                    int64_t width, BufferUse use);
  void addMatrixMemory(Operation *op);
  void addProductMemory(ProductOp product);
  void addRoutineMemory(RoutineOpInterface op);
  void addHandedMemory(RoutineOpInterface op);
  void addVectors();
  void add(Value value, StringRef prefix, int64_t number,
           SmallVector<std::string> size, Type element);
  SmallVector<std::string> getPartialSize(PartialType type) const;

  ProgramOp program;
  ParamDims dims;
  Numbers cohortSlots, tensorSlots;
  std::vector<WorkspaceBuffer> workspace;
  DenseMap<Value, int64_t> buffers;
  DenseMap<Operation *, ProductMemory> products;
  DenseMap<Operation *, RoutineMemory> routines;
  DenseMap<Operation *, HandedMemory> handed;
};

} // namespace mlir::step

#endif // STEPC_PASSES_SCHEDULE_PROGRAMSTORAGE_H
