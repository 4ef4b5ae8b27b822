//===- TileRow.cpp - a row of the table in the tiles space ----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/lower/TileRow.h"

#include "stepc/kernel_abi.h"

using namespace mlir;
using namespace mlir::step;

TileRow::TileRow(const Words &w, const ProgramStorage &storage,
                 const CallWords &call, Value index)
    : storage(storage), routines(call.routines), w(w),
      workspace(call.workspace), extents(w), whole(w) {
  ProgramOp program = storage.getProgram();
  llvm::append_range(names, step::getDims(program.getParam().getType()));
  llvm::append_range(names, program.getBoundDimNames());
  Value rowBytes = w.mul(call.rowWords, w.constantWord(8));
  rowAddress = w.add(call.table, w.mul(index, rowBytes));
  row = w.words(rowAddress);
  scalars = w.load(row, STEPC_ROW_SCALARS);
  tensorSlots = w.load(row, STEPC_TILE_SLOTS);
  const ParamDims &dims = getDims();
  for (unsigned position = 0; position < names.size(); ++position)
    extents.add(w.load(row, STEPC_TILE_EXTENTS + position));
  for (unsigned position = 0; position < names.size(); ++position)
    whole.add(w.load(row, STEPC_TILE_WHOLE(names.size()) + position));
  B = extents.count(dims.getOuter());
  N = dims.getRow() ? extents[*dims.getRow()] : w.constantWord(1);
  M = extents[dims.getLane()];
  rowBlocks = w.ceilDiv(N, STEPC_ROW_LEAF);
  tileColumns = w.ceilDiv(M, STEPC_TILE_COLUMNS);
  leaves = w.ceilDiv(M, STEPC_LEAF);
  if (storage.getProgram().isFlatRange())
    readRange();
}

Extents TileRow::get(const Extents &own, ArrayRef<StringAttr> of) const {
  Extents found(w);
  for (StringAttr dim : of) {
    size_t position = llvm::find(names, dim) - names.begin();
    found.add(position < names.size() ? own[position] : w.constantWord(1));
  }
  return found;
}

Value Extents::count(DimSet dims) const {
  Value product;
  for (unsigned position : dims.getPositions())
    product = product ? w.mul(product, extents[position]) : extents[position];
  return product ? product : w.constantWord(1);
}

/// From the innermost dim outwards. Of [a, b, c] onto [a, c]:
///
///   number % c + (number / c / b) * c
Value Extents::project(Value number, DimSet from, DimSet onto) const {
  if (from == onto)
    return number;
  Value index, stride;
  SmallVector<unsigned> positions = from.getPositions();
  for (unsigned position : llvm::reverse(positions)) {
    Value extent = extents[position];
    bool isOutermost = position == positions.front();
    if (onto.contains(position)) {
      Value own = isOutermost ? number : w.rem(number, extent);
      index = index ? w.add(index, w.mul(own, stride)) : own;
      stride = stride ? w.mul(stride, extent) : extent;
    }
    if (!isOutermost)
      number = w.div(number, extent);
  }
  return index ? index : w.constantWord(0);
}

/// An empty range touches nothing: its counts are 0.
void TileRow::readRange() {
  Range in;
  in.begin = w.load(row, STEPC_TILE_BEGIN(names.size()));
  in.end = w.load(row, STEPC_TILE_END(names.size()));
  in.elements = w.sub(in.end, in.begin);
  Value zero = w.constantWord(0), one = w.constantWord(1);
  Value some = w.isLess(zero, in.elements);
  // No extent is 0 where the range has an element.
  Value rowsOfItem = w.max(N, one), columns = w.max(M, one);
  auto getBlock = [&](Value ofRow) {
    Value item = w.div(ofRow, rowsOfItem);
    Value block =
        w.div(w.rem(ofRow, rowsOfItem), w.constantWord(STEPC_ROW_LEAF));
    return w.add(w.mul(item, rowBlocks), block);
  };
  auto getCount = [&](Value first, Value last) {
    return w.select(some, w.add(w.sub(last, first), one), zero);
  };
  in.firstRow = w.div(in.begin, columns);
  Value lastRow = w.div(w.max(w.sub(in.end, one), in.begin), columns);
  in.rows = getCount(in.firstRow, lastRow);
  in.firstBlock = getBlock(in.firstRow);
  in.blocks = getCount(in.firstBlock, getBlock(lastRow));
  in.firstItem = w.div(in.firstRow, rowsOfItem);
  in.items = getCount(in.firstItem, w.div(lastRow, rowsOfItem));
  range = in;
}

int64_t mlir::step::getOperandIndex(Value buffer) {
  auto argument = cast<BlockArgument>(getMemory(buffer));
  return cast<ProgramOp>(argument.getOwner()->getParentOp())
      .getOperandIndex(argument);
}

SmallVector<Value> mlir::step::emitStridedOffsets(const Words &w, Value rank,
                                                  Value extents,
                                                  ArrayRef<int64_t> operands,
                                                  Value position) {
  Value words = w.words(extents), dims = w.toIndex(rank);
  return emitOffsets(
      w, dims, position, operands.size(),
      [&](Value dim) { return w.load(words, dim); },
      [&](int64_t k, Value dim) {
        Value strides = w.mul(dims, w.constant(1 + operands[k]));
        return w.load(words, w.add(strides, dim));
      });
}

int64_t TileRow::getOperandsWord() const {
  return STEPC_TILE_OPERANDS(int64_t(names.size()));
}

Value TileRow::getAddress(Value buffer) const {
  if (isa<BlockArgument>(getMemory(buffer)))
    return w.load(row, getOperandsWord() + getOperandIndex(buffer));
  return getWorkspaceAddress(storage.getBufferIndex(buffer));
}

Value TileRow::getWorkspaceAddress(int64_t index) const {
  int64_t operands = storage.getProgram().getOperandArguments().size();
  Value word = w.load(row, getOperandsWord() + operands + index);
  const WorkspaceBuffer &buffer = storage.getWorkspace()[index];
  bool isAddress = buffer.live || buffer.use == BufferUse::Record ||
                   buffer.use == BufferUse::Handed;
  return isAddress ? word : w.add(workspace, word);
}

Value TileRow::getRank() const { return w.load(row, STEPC_ROW_RANK); }

Value TileRow::getExtentWords() const {
  int64_t words = getOperandsWord() +
                  storage.getProgram().getOperandArguments().size() +
                  storage.getWorkspace().size();
  return w.add(rowAddress, w.constantWord(8 * words));
}

Value TileRow::getStrides(Value buffer) const {
  Value words =
      w.mul(getRank(), w.constantWord(8 * (1 + getOperandIndex(buffer))));
  return w.add(getExtentWords(), words);
}
