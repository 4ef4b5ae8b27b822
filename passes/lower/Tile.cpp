//===- Tile.cpp - where a tile and its operands lie -----------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/lower/Tile.h"

#include "stepc/kernel_abi.h"

using namespace mlir;
using namespace mlir::step;

Access mlir::step::getAccess(TraverseOp traverse, const Operand &operand) {
  ParamDims dims = getParamDims(traverse);
  DimSet own = getDimSet(traverse, operand), over = getDimSet(traverse);
  std::optional<unsigned> lane = dims.getLane(), row = dims.getRow();
  if (!traverse.isKernel()) {
    lane = over.getInnermost();
    row = std::nullopt;
  }
  bool hasLane = !lane || own.contains(*lane);
  if (!row)
    return hasLane ? Access::Tile : Access::Item;
  if (own.contains(*row))
    return hasLane ? Access::Tile : Access::Row;
  return hasLane ? Access::Column : Access::Item;
}

bool mlir::step::isOfElements(TraverseOp traverse, const Operand &operand) {
  return traverse.isKernel() && isa<BlockArgument>(getMemory(operand.buffer)) &&
         getDimSet(traverse, operand) == getDimSet(traverse);
}

SmallVector<Value> TileRunArguments::getValues() const {
  SmallVector<Value> values{scalars, tensorSlots};
  values.append(operands.begin(), operands.end());
  values.append(accumulators.begin(), accumulators.end());
  values.append({pitch, leaves, rows, cols});
  return values;
}

TileRunArguments::TileRunArguments(ValueRange values, int64_t numOperands,
                                   int64_t numAccumulators) {
  scalars = values[0];
  tensorSlots = values[1];
  ValueRange rest = values.drop_front(2);
  operands.assign(rest.begin(), rest.begin() + numOperands);
  rest = rest.drop_front(numOperands);
  accumulators.assign(rest.begin(), rest.begin() + numAccumulators);
  rest = rest.drop_front(numAccumulators);
  pitch = rest[0];
  leaves = rest[1];
  rows = rest[2];
  cols = rest[3];
}

Tile mlir::step::locateTile(const Words &w, const TileRow &row, Value number) {
  Value columnBlock = w.rem(number, row.tileColumns);
  Value rest = w.div(number, row.tileColumns);
  if (row.range)
    rest = w.add(rest, row.range->firstBlock);
  Tile tile;
  tile.item = w.div(rest, row.rowBlocks);
  tile.firstRow =
      w.mul(w.rem(rest, row.rowBlocks), w.constantWord(STEPC_ROW_LEAF));
  tile.rows =
      w.min(w.sub(row.N, tile.firstRow), w.constantWord(STEPC_ROW_LEAF));
  tile.firstColumn = w.mul(columnBlock, w.constantWord(STEPC_TILE_COLUMNS));
  tile.columns =
      w.min(w.sub(row.M, tile.firstColumn), w.constantWord(STEPC_TILE_COLUMNS));
  return tile;
}

void mlir::step::forEachLeafOfRange(const Words &w, const TileRow &row,
                                    const Tile &line,
                                    function_ref<void(const Tile &)> emitLeaf) {
  Value first = w.add(w.mul(line.item, row.N), line.firstRow);
  first = w.mul(first, row.M);
  Value endColumn = w.add(line.firstColumn, line.columns);
  auto clip = [&](Value element) {
    return w.min(w.max(w.sub(element, first), line.firstColumn), endColumn);
  };
  Value low = clip(row.range->begin), high = clip(row.range->end);
  Value size = w.constantWord(STEPC_LEAF);
  Value firstLeaf = w.div(low, size);
  Value endLeaf =
      w.select(w.isLess(low, high), w.ceilDiv(high, STEPC_LEAF), firstLeaf);
  w.loop(w.toIndex(firstLeaf), w.toIndex(endLeaf), 1, [&](Value index) {
    Value leafColumn = w.mul(w.toWord(index), size);
    Tile leaf = line;
    leaf.firstColumn = w.max(low, leafColumn);
    leaf.columns =
        w.sub(w.min(high, w.add(leafColumn, size)), leaf.firstColumn);
    emitLeaf(leaf);
  });
}

void mlir::step::emitTileOfRange(const Words &w, const TileRow &row,
                                 const Tile &tile, function_ref<void()> emitAll,
                                 function_ref<void(const Tile &)> emitLine) {
  const TileRow::Range &range = *row.range;
  Value one = w.constantWord(1);
  Value firstRow = w.add(w.mul(tile.item, row.N), tile.firstRow);
  Value lastRow = w.sub(w.add(firstRow, tile.rows), one);
  Value first = w.add(w.mul(firstRow, row.M), tile.firstColumn);
  Value end =
      w.add(w.mul(lastRow, row.M), w.add(tile.firstColumn, tile.columns));
  Value hasAll = w.both(w.isLess(w.sub(range.begin, one), first),
                        w.isLess(w.sub(end, one), range.end));
  w.branch(hasAll, emitAll, [&] {
    Value endRow = w.add(range.firstRow, range.rows);
    Value from = w.max(firstRow, range.firstRow);
    Value to = w.min(w.add(lastRow, one), endRow);
    w.loop(w.toIndex(from), w.toIndex(to), 1, [&](Value number) {
      Tile line = tile;
      line.firstRow = w.sub(w.toWord(number), w.mul(tile.item, row.N));
      line.rows = one;
      emitLine(line);
    });
  });
}

Value mlir::step::getOperandAddress(const Words &w, const TileRow &row,
                                    const Tile &tile, TraverseOp traverse,
                                    const Operand &operand) {
  DimSet outer = row.getDims().getOuter();
  Value item = row.getExtents().project(tile.item, outer,
                                        getDimSet(traverse, operand) & outer);
  Value firstRow = w.add(w.mul(item, row.N), tile.firstRow);
  Value element;
  switch (getAccess(traverse, operand)) {
  case Access::Tile:
    element = w.add(w.mul(firstRow, row.M), tile.firstColumn);
    if (row.range && isOfElements(traverse, operand))
      element = w.sub(element, row.range->begin);
    break;
  case Access::Row:
    element = firstRow;
    break;
  case Access::Column:
    element = w.add(w.mul(item, row.M), tile.firstColumn);
    break;
  case Access::Item:
    element = item;
    break;
  }
  Value size = w.constantWord(operand.getBytes());
  return w.add(row.getAddress(operand.buffer), w.mul(element, size));
}

Value mlir::step::getPartialAddress(const Words &w, const TileRow &row,
                                    const Tile &tile,
                                    const Accumulator &accumulator) {
  auto type = cast<PartialType>(accumulator.partial.getType());
  ReductionDims in(row.getDims(), type.getShape(), type.getKeptShape());
  // Of what a range touches, but where outer dims are reduced.
  bool ofRange = row.range && !in.reducesOuter;
  Value index;
  if (accumulator.is(Leaves::Columns)) {
    Value block = w.div(tile.firstRow, w.constantWord(STEPC_ROW_LEAF));
    block = w.add(w.mul(tile.item, row.rowBlocks), block);
    if (ofRange)
      block = w.sub(block, row.range->firstBlock);
    index = w.add(w.mul(block, row.M), tile.firstColumn);
  } else {
    Value firstRow = w.add(w.mul(tile.item, row.N), tile.firstRow);
    if (ofRange)
      firstRow = w.sub(firstRow, row.range->firstRow);
    bool isLane = accumulator.is(Leaves::Lanes);
    Value inRow = isLane ? w.div(tile.firstColumn, w.constantWord(STEPC_LEAF))
                         : tile.firstColumn;
    index = w.add(w.mul(firstRow, isLane ? row.leaves : row.M), inRow);
  }
  return w.add(row.getAddress(accumulator.partial),
               w.mul(index, w.constantWord(8)));
}
