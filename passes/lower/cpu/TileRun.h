//===- TileRun.h - functions over rows of elements ---------------*- C++
//-*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_LOWER_CPU_TILERUN_H
#define STEPC_PASSES_LOWER_CPU_TILERUN_H

#include "passes/lower/BodyEmitter.h"

namespace mlir::step {

/// How the address of an operand changes in a run of rows.
enum class Access {
  Tile,   // with the row and the column: an operand of all dims
  Row,    // with the row
  Column, // with the column
  Item,   // not at all
};

/// The access of an operand in a phase. In phases of vectors (spaces rows,
/// columns and items), which are run as a single row, it is Tile or Item.
Access getAccess(PhaseOp phase, OperandAttr operand);

/// The arguments of a run function, in this order.
struct TileRunArguments {
  Value scalars;                   // address of the cohort's scalars
  Value tensorSlots;               // address of the tensor's
  SmallVector<Value> operands;     // address of the first row's first element
  SmallVector<Value> accumulators; // address of the first partial result
  Value pitch;      // elements from row to row, of operands of all dims
  Value leaves;     // leaves from row to row, of accumulators along rows
  Value rows, cols; // indices

  SmallVector<Value> getValues() const;
};

/// Makes the function that runs the phase on `rows` times `cols` elements, from
/// the first column of a leaf on, each row in vectors of 16 and the rest one by
/// one. Accumulators along columns are added to what is there.
func::FuncOp emitTileRun(OpBuilder &builder, PhaseOp phase, StringRef name,
                         int64_t prefetchLines);

} // namespace mlir::step

#endif // STEPC_PASSES_LOWER_CPU_TILERUN_H
