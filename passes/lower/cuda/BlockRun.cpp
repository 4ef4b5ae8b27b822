//===- BlockRun.cpp - a phase on rows of elements, by a block -------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A block walks down a strip of columns, row by row. Where all addresses permit
// a thread has the `lanes` columns of one access of 16 bytes in every row, and
// their sums along columns in registers; what is left is shared out by single
// columns, of which a thread has the same in every row, with the sums in
// memory. What is summed along rows is staged in shared memory, some rows at a
// time: a thread then adds one of the 16 lanes of a leaf, in their order. Where
// not even one row fits it is handled part by part, each by its own threads.
//
//===----------------------------------------------------------------------===//
#include "passes/lower/cuda/BlockRun.h"

#include "passes/lower/Combiners.h"
#include "passes/lower/cuda/ColumnSums.h"
#include "passes/lower/cuda/ElementKernel.h"
#include "passes/lower/cuda/GridKernel.h"
#include "passes/lower/cuda/LaneSums.h"
#include "stepc/kernel_abi.h"

#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::step;

/// Elements that a thread handles at once.
static int64_t getLanes(TraverseOp traverse) {
  int64_t narrowest = 4;
  for (const Operand &operand : getOperands(traverse))
    if (getBlockAccess(traverse, operand) == Access::Tile)
      narrowest = std::min(narrowest, operand.getBytes());
  return kAccessBytes / narrowest;
}

int64_t mlir::step::getStripColumns(TraverseOp traverse) {
  return getLanes(traverse) * kBlockThreads;
}

Access mlir::step::getBlockAccess(TraverseOp traverse, const Operand &operand) {
  Access access = getAccess(traverse, operand);
  return !traverse.isKernel() && access == Access::Item ? Access::Row : access;
}

bool mlir::step::fitsSharedMemory(TraverseOp traverse) {
  return LaneSums::getStaging(traverse, getStripColumns(traverse)).has_value();
}

namespace {
/// Where an operand of strided rows is found.
struct StridedRows {
  Value rank, extents, first; // words
};

/// Emits one run function.
class BlockRunEmitter {
public:
  BlockRunEmitter(OpBuilder &builder, TraverseOp traverse,
                  const ProgramStorage &storage)
      : w(builder, traverse.getLoc()), traverse(traverse),
        body(builder, traverse, storage),
        accumulators(getAccumulators(traverse)), lanes(getLanes(traverse)),
        width(getStripColumns(traverse)), columnSums(w, traverse, lanes),
        rowSums(w, traverse, width) {
    for (const Operand &operand : body.getOperands())
      accesses.push_back(getBlockAccess(traverse, operand));
    partialRows.resize(accumulators.size());
  }

  func::FuncOp emit(StringRef name, bool isStrided);

private:
  /// What is to be done in a strip, or a part of one: its columns, the first
  /// one of this thread that is handled by vectors and whether there is one,
  /// and the first single column of all threads. All are indices but the
  /// condition.
  struct Strip {
    Value begin, end, vector, hasVector, single;
  };

  Value countVectorColumns() const;
  Strip getStrip(Value begin, Value vectors) const;
  Strip getPart(const Strip &strip, Value begin) const;
  void emitStrip(const Strip &strip);
  void forEachSingle(const Strip &part, function_ref<void(Value)> emitBody);
  void clearColumns(const Strip &strip);
  using Vectors = SmallVector<Value>;
  Vectors emitRow(const Strip &strip, Value number, Value staged,
                  ValueRange columns);
  Vectors emitPart(const Strip &part, Value number, Value staged,
                   ValueRange columns);
  Vectors emitVectors(const Strip &part, Value staged, ValueRange columns);
  void emitSingles(const Strip &part, Value number, Value staged);
  void openRow(Value number);
  bool isMoved(unsigned k) const {
    return strided && isOfElements(traverse, body.getOperands()[k]);
  }
  /// The column's element, counted from where the operand has the row.
  Value getPlace(unsigned k, Value column) const {
    bool moves = accesses[k] == Access::Tile && !isMoved(k);
    return moves ? w.add(w.toIndex(rowBegin), column) : column;
  }
  SmallVector<Value> locateElement(Value number, Value column) const;
  void accumulate(unsigned k, Value value, Value staged, const Strip &part,
                  Value column);
  Value asVector(Value value) const;
  AccessHints getHints(unsigned k) const;

  Words w;
  TraverseOp traverse;
  /// With the slots fixed, and the same with the row's operands too.
  BodyEmitter body;
  std::optional<BodyEmitter> rowBody;
  SmallVector<Access> accesses;
  SmallVector<Accumulator> accumulators;
  int64_t lanes, width;
  ColumnSums columnSums;
  LaneSums rowSums;
  TileRunArguments in;
  Value thread;
  std::optional<StridedRows> strided;
  /// Elements before the row at hand, and for each operand the address from
  /// which on it has the row.
  Value rowBegin;
  SmallVector<Value> operandRows;
  /// The same of accumulators that have each element.
  SmallVector<Value> partialRows;
};
} // namespace

/// What no later phase of the schedule reads is read by nobody before the next
/// step, where it is the optimizer's own.
AccessHints BlockRunEmitter::getHints(unsigned k) const {
  const Operand &operand = body.getOperands()[k];
  bool streamed = operand.isState();
  for (Operation *op = traverse->getNextNode(); streamed && op;
       op = op->getNextNode())
    if (auto later = dyn_cast<TraverseOp>(op))
      streamed = llvm::none_of(getOperands(later), [&](const Operand &other) {
        return other.isSameMemory(operand);
      });
  return {streamed, llvm::Align(kAccessBytes)};
}

/// The columns, from the first on, that are handled by vectors in every row: an
/// index.
Value BlockRunEmitter::countVectorColumns() const {
  Value zero = w.constantWord(0), bits = zero, pitches = zero;
  for (auto [k, operand] : llvm::enumerate(body.getOperands())) {
    if (accesses[k] != Access::Tile && accesses[k] != Access::Column)
      continue;
    bits = w.either(bits, in.operands[k]);
    Value size = w.constantWord(operand.getBytes());
    if (accesses[k] == Access::Tile)
      pitches = w.either(pitches, w.mul(in.pitch, size));
  }
  // A single row goes nowhere from its begin.
  Value isSingle = w.isLess(w.toWord(in.rows), w.constantWord(2));
  bits = w.either(bits, w.select(isSingle, zero, pitches));
  return w.select(isAligned(w, bits), w.floorTo(in.cols, lanes), w.constant(0));
}

/// Sets the addresses of row `number` (an index), and fixes what is the same in
/// all of it. What moves with the row has one offset in common: an address for
/// each operand would be kept in two registers beside that of its first row.
void BlockRunEmitter::openRow(Value number) {
  Value row = w.toWord(number);
  rowBegin = w.mul(row, in.pitch);
  operandRows.clear();
  SmallVector<Value> elements;
  for (auto [k, operand] : llvm::enumerate(body.getOperands())) {
    Value size = w.constantWord(operand.getBytes());
    Value address = in.operands[k];
    if (accesses[k] == Access::Row)
      address = w.add(address, w.mul(row, size));
    operandRows.push_back(address);
    bool fixed = accesses[k] == Access::Row || accesses[k] == Access::Item;
    elements.push_back(
        fixed && operand.reads()
            ? emitLoad(w, operand.getStorage(), 0, address, w.constant(0))
            : Value());
  }
  for (auto [k, accumulator] : llvm::enumerate(accumulators))
    if (accumulator.is(Leaves::Elements))
      partialRows[k] =
          w.add(in.accumulators[k], w.mul(rowBegin, w.constantWord(8)));
  rowBody.emplace(body);
  rowBody->fixOperands(elements);
}

/// Of an element or a vector from `column` (an index) on, but for sums along
/// columns: stages what is summed along rows, and stores what is not summed
/// here, added to +0.0 as all is.
void BlockRunEmitter::accumulate(unsigned k, Value value, Value staged,
                                 const Strip &part, Value column) {
  if (!accumulators[k].is(Leaves::Elements))
    return rowSums.stage(k, value, staged, w.sub(column, part.begin));
  Combiner combiner = accumulators[k].combiner;
  value = emitWidened(w, value);
  auto vector = dyn_cast<VectorType>(value.getType());
  int64_t count = vector ? vector.getNumElements() : 0;
  value = emitCombined(w, combiner, emitNeutral(w, combiner, count), value);
  emitStore(w, w.b.getF64Type(), count, value, partialRows[k], column);
}

Value BlockRunEmitter::asVector(Value value) const {
  if (isa<VectorType>(value.getType()))
    return value;
  return vector::BroadcastOp::create(
      w.b, w.loc, VectorType::get({lanes}, value.getType()), value);
}

/// The vector of this thread in the row at hand, if it has one. Returns the
/// sums along columns.
BlockRunEmitter::Vectors BlockRunEmitter::emitVectors(const Strip &part,
                                                      Value staged,
                                                      ValueRange columns) {
  auto branch = scf::IfOp::create(w.b, w.loc, columns.getTypes(),
                                  part.hasVector, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(w.b);
  w.b.setInsertionPointToStart(branch.elseBlock());
  if (!columns.empty())
    scf::YieldOp::create(w.b, w.loc, columns);
  w.b.setInsertionPointToStart(branch.thenBlock());
  ArrayRef<Operand> operands = body.getOperands();
  Vectors next(columns);
  auto load = [&](unsigned k) {
    return emitLoad(w, operands[k].getStorage(), lanes, operandRows[k],
                    getPlace(k, part.vector), getHints(k));
  };
  auto store = [&](unsigned k, Value value) {
    emitStore(w, operands[k].getStorage(), lanes, value, operandRows[k],
              getPlace(k, part.vector), getHints(k));
  };
  auto accumulateVector = [&](unsigned k, Value value) {
    value = asVector(value);
    if (columnSums.has(k))
      return columnSums.add(k, value, next);
    accumulate(k, value, staged, part, part.vector);
  };
  rowBody->emit(lanes, {load, store, accumulateVector});
  if (!next.empty())
    scf::YieldOp::create(w.b, w.loc, next);
  return Vectors(branch.getResults());
}

/// For each operand the address of the row's element in `column`, an index.
SmallVector<Value> BlockRunEmitter::locateElement(Value number,
                                                  Value column) const {
  SmallVector<Value> addresses;
  ArrayRef<Operand> operands = body.getOperands();
  auto getElement = [&](unsigned k, Value offset) {
    Value size = w.constantWord(operands[k].getBytes());
    return w.add(operandRows[k], w.mul(offset, size));
  };
  Value word = w.toWord(column);
  SmallVector<Value> offsets;
  for (unsigned k = 0; k < operands.size(); ++k)
    offsets.push_back(w.toWord(getPlace(k, column)));
  if (strided) {
    SmallVector<unsigned> moving;
    SmallVector<int64_t> places;
    for (unsigned k = 0; k < operands.size(); ++k)
      if (isMoved(k)) {
        moving.push_back(k);
        places.push_back(getOperandIndex(operands[k].buffer));
      }
    Value position = w.add(w.mul(w.toWord(number), in.pitch), word);
    SmallVector<Value> found =
        emitStridedOffsets(w, strided->rank, strided->extents, places,
                           w.add(strided->first, position));
    for (auto [k, offset] : llvm::zip(moving, found))
      offsets[k] = offset;
  }
  for (unsigned k = 0; k < operands.size(); ++k) {
    bool moves = accesses[k] == Access::Tile || accesses[k] == Access::Column;
    addresses.push_back(moves ? getElement(k, offsets[k]) : operandRows[k]);
  }
  return addresses;
}

/// The single columns of this thread: the same in every row.
void BlockRunEmitter::forEachSingle(const Strip &part,
                                    function_ref<void(Value)> emitBody) {
  w.loop(w.add(part.single, thread), part.end, kBlockThreads, emitBody);
}

void BlockRunEmitter::emitSingles(const Strip &part, Value number,
                                  Value staged) {
  ArrayRef<Operand> operands = body.getOperands();
  Value zero = w.constant(0);
  forEachSingle(part, [&](Value column) {
    SmallVector<Value> addresses = locateElement(number, column);
    auto load = [&](unsigned k) {
      return emitLoad(w, operands[k].getStorage(), 0, addresses[k], zero);
    };
    auto store = [&](unsigned k, Value value) {
      emitStore(w, operands[k].getStorage(), 0, value, addresses[k], zero);
    };
    auto accumulateSingle = [&](unsigned k, Value value) {
      if (columnSums.has(k))
        return columnSums.add(in, k, value, column);
      accumulate(k, value, staged, part, column);
    };
    rowBody->emit(0, {load, store, accumulateSingle});
  });
}

BlockRunEmitter::Vectors BlockRunEmitter::emitPart(const Strip &part,
                                                   Value number, Value staged,
                                                   ValueRange columns) {
  Vectors next(columns);
  if (!strided)
    next = emitVectors(part, staged, columns);
  emitSingles(part, number, staged);
  return next;
}

/// Row `number`, whose staged values go to row `staged` of the shared memory;
/// or part after part, each of which is staged there and added up.
BlockRunEmitter::Vectors BlockRunEmitter::emitRow(const Strip &strip,
                                                  Value number, Value staged,
                                                  ValueRange columns) {
  openRow(number);
  if (!rowSums.isSplit()) {
    Vectors next = emitPart(strip, number, staged, columns);
    rowBody.reset();
    return next;
  }
  auto emitNext = [&](Value begin, ValueRange before) {
    Strip part = getPart(strip, begin);
    Vectors next = emitPart(part, number, staged, before);
    rowSums.emit(in, number, w.add(number, w.constant(1)), part.begin);
    rowBody.reset();
    return next;
  };
  return w.foldAll(strip.begin, strip.end, w.constant(rowSums.getColumns()),
                   columns, emitNext);
}

/// Sums along columns that are kept in memory start from the neutral value.
void BlockRunEmitter::clearColumns(const Strip &strip) {
  if (!columnSums.clearsMemory())
    return;
  auto clear = [&](const Strip &part) {
    forEachSingle(part, [&](Value column) { columnSums.clear(in, column); });
  };
  if (!rowSums.isSplit())
    return clear(strip);
  w.loop(strip.begin, strip.end, rowSums.getColumns(),
         [&](Value begin) { clear(getPart(strip, begin)); });
}

void BlockRunEmitter::emitStrip(const Strip &strip) {
  Vectors columns;
  if (!strided)
    columns = columnSums.begin(in, strip.vector, strip.hasVector);
  clearColumns(strip);
  int64_t rows = rowSums.isEmpty() ? STEPC_ROW_LEAF : rowSums.getRows();
  auto emitGroup = [&](Value first, ValueRange before) {
    Value end = w.min(w.add(first, w.constant(rows)), in.rows);
    Vectors next = w.foldAll(
        first, end, w.constant(1), before, [&](Value number, ValueRange own) {
          return emitRow(strip, number, w.sub(number, first), own);
        });
    if (!rowSums.isSplit())
      rowSums.emit(in, first, end, strip.begin);
    return next;
  };
  columns =
      w.foldAll(w.constant(0), in.rows, w.constant(rows), columns, emitGroup);
  columnSums.store(in, strip.vector, strip.hasVector, columns);
}

/// The strip that begins at a column; the columns before `vectors` are handled
/// by vectors.
BlockRunEmitter::Strip BlockRunEmitter::getStrip(Value begin,
                                                 Value vectors) const {
  Strip strip;
  strip.begin = begin;
  strip.end = w.min(w.add(begin, w.constant(width)), in.cols);
  strip.vector = w.add(begin, w.mul(thread, w.constant(lanes)));
  strip.hasVector = w.isLess(strip.vector, vectors);
  strip.single = w.max(begin, vectors);
  return strip;
}

/// What is staged of it at a time, from a column on: by the threads that have
/// vectors there.
BlockRunEmitter::Strip BlockRunEmitter::getPart(const Strip &strip,
                                                Value begin) const {
  Strip part = strip;
  Value end = w.add(begin, w.constant(rowSums.getColumns()));
  part.begin = begin;
  part.end = w.min(end, strip.end);
  Value isAfter = w.isLess(w.sub(begin, w.constant(1)), strip.vector);
  Value isOwn = w.both(isAfter, w.isLess(strip.vector, end));
  part.hasVector = w.both(strip.hasVector, isOwn);
  part.single = w.max(begin, strip.single);
  return part;
}

func::FuncOp BlockRunEmitter::emit(StringRef name, bool isStrided) {
  int64_t numOperands = body.getOperands().size();
  int64_t numPartials = accumulators.size();
  int64_t before = isStrided ? 3 : 0;
  func::FuncOp function = makeInternalFunction(
      w.b, w.loc, name, before + 2 + numOperands + numPartials + 2, 2);
  OpBuilder::InsertionGuard guard(w.b);
  Block &entry = function.getBody().front();
  w.b.setInsertionPointToStart(&entry);
  ValueRange arguments = entry.getArguments();
  if (isStrided)
    strided = StridedRows{arguments[0], arguments[1], arguments[2]};
  in = TileRunArguments(arguments.drop_front(before), numOperands, numPartials);
  body.fixScalars(in.scalars, in.tensorSlots);
  Value vectors = isStrided ? w.constant(0) : countVectorColumns();
  thread = emitThread(w);
  w.loop(w.constant(0), in.cols, width,
         [&](Value begin) { emitStrip(getStrip(begin, vectors)); });
  func::ReturnOp::create(w.b, w.loc);
  return function;
}

func::FuncOp mlir::step::emitBlockRun(OpBuilder &builder, TraverseOp traverse,
                                      const ProgramStorage &storage,
                                      StringRef name) {
  return BlockRunEmitter(builder, traverse, storage)
      .emit(name, /*isStrided=*/false);
}

func::FuncOp mlir::step::emitStridedBlockRun(OpBuilder &builder,
                                             TraverseOp traverse,
                                             const ProgramStorage &storage,
                                             StringRef name) {
  return BlockRunEmitter(builder, traverse, storage)
      .emit(name, /*isStrided=*/true);
}
