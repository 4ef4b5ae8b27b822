//===- Products.h - matrices in a finish ------------------------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_LOWER_PRODUCTS_H
#define STEPC_PASSES_LOWER_PRODUCTS_H

#include "passes/lower/TileRow.h"

namespace mlir::step {

class FinishPolicy;

/// A matrix in memory, as it is read. Strides are in elements; all values are
/// words.
struct Matrix {
  Value address;
  Type storage;
  Value rowStride, columnStride;
  /// Whether the elements of a column lie side by side, and not those of a row.
  bool isTransposed = false;
};

/// One product of [rows, depth] and [depth, columns], row-major into `result`,
/// whose elements are of the type `stored`; they are added up in `compute`, or
/// `inPairs` of factors in bf16 in f32. Where the result is symmetric only one
/// half has to be computed. All values are words.
struct Product {
  Matrix lhs, rhs;
  Value result;
  Value rows, depth, columns;
  Type compute, stored;
  bool isSymmetric, inPairs;
  Value routines; // the address of StepcRoutines
  /// Memory for the operands as the policy wants them (ProductMemory).
  Value panels, packed;
  /// Which of the batch it is.
  Value item;
  /// On a device: the first tile of the block, and its scratch memory.
  Value firstTile = {}, scratch = {};
};

/// Of a product the batch, and the result's rows and columns. Words.
struct ProductSize {
  Value items, rows, columns;
};
ProductSize getProductSize(const Words &w, const TileRow &row,
                           ProductOp product);

/// A call of a routine of the runtime. All values are words.
struct RoutineCall {
  Value routines; // the address of StepcRoutines
  llvm::StringRef name;
  SmallVector<Value> arguments;
};

/// Emits what a finish does with matrices (`step.product` and others), for
/// each matrix of the batch; nothing is done where its `unless` holds.
void emitMatrices(const Words &w, const TileRow &row,
                  const FinishPolicy &policy, ProgramMatrixOpInterface op);

/// On a device: the operand of a routine, of all matrices, where the host
/// reaches it, and the record of the call; and the result from there. Nothing
/// is done where its `unless` holds. `byOne` is for one thread of all.
void emitHanded(const Words &w, const TileRow &row, const FinishPolicy &policy,
                RoutineOpInterface op);
void emitTaken(const Words &w, const TileRow &row, const FinishPolicy &policy,
               RoutineOpInterface op);

/// How the names of functions begin that multiply, and that alone may have
/// fused multiply-adds. No name of a definition is mangled to one that begins
/// so: behind each `$` are two hexadecimal digits then.
inline constexpr llvm::StringLiteral kProductPrefix = "product$of_";

/// The function with dot products of bf16, which not every processor has.
inline constexpr llvm::StringLiteral kDotsName = "product$of_dots";

/// What makes one of those, in LLVM.
inline constexpr llvm::StringLiteral kDotsIntrinsic =
    "llvm.x86.avx512bf16.dpbf16ps.512";

/// How the names of functions begin that call a routine of the runtime, and
/// that alone may call what is not of the module.
inline constexpr llvm::StringLiteral kRoutinePrefix = "routine$of_";

/// Calls the runtime's routine.
void callRoutine(const Words &w, const RoutineCall &call);

/// Calls the function of such products, which the module gets once: `emitBody`
/// fills it.
void callProduct(const Words &w, const Product &product,
                 function_ref<void(const Words &, const Product &)> emitBody);

/// An element of a matrix at an address, or a vector of `lanes` elements, in
/// the compute type.
Value loadElement(const Words &w, const Matrix &matrix, Type compute,
                  Value index, int64_t lanes = 0);

/// The type in which a product is added up.
Type getComputeType(ProductOp product);

/// Elements of memory, one or a vector of them, in the compute type.
Value convertElements(const Words &w, Value elements, Type compute);

} // namespace mlir::step

#endif // STEPC_PASSES_LOWER_PRODUCTS_H
