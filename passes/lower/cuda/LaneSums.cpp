//===- LaneSums.cpp - sums along rows in shared memory --------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/lower/cuda/LaneSums.h"

#include "passes/lower/Combiners.h"
#include "passes/lower/cuda/BlockRun.h"
#include "passes/lower/cuda/BlockTree.h"
#include "passes/lower/cuda/ElementKernel.h"
#include "passes/lower/cuda/GridKernel.h"
#include "stepc/kernel_abi.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::step;

/// Elements between staged rows, so that the lanes of two rows, which a warp
/// reads at once, lie in different banks.
static constexpr int64_t kPadding = STEPC_LANES;
static constexpr int64_t kWarpThreads = 32;
/// What a block may take of shared memory: several blocks have room on a
/// processor.
static constexpr int64_t kStagedBytes = 36 * 1024;

static SmallVector<unsigned> getAlongRow(PhaseOp phase) {
  SmallVector<unsigned> found;
  for (auto [k, accumulator] :
       llvm::enumerate(phase.getAccumulators().getAsRange<AccumulatorAttr>()))
    if (accumulator.getDirection() == Direction::Row)
      found.push_back(k);
  return found;
}

/// The type in which a program's values are staged, for all of its kernels
/// share the memory: that of the values, f64 where they differ.
static Type getStagedType(ProgramOp program) {
  Type type;
  program.walk([&](PhaseOp phase) {
    auto values = phase.getBody().front().getTerminator()->getOperandTypes();
    int64_t first = values.size() - phase.getAccumulators().size();
    for (unsigned k : getAlongRow(phase)) {
      Type own = values[first + k];
      type = !type || type == own ? own : Float64Type::get(phase.getContext());
    }
  });
  return type;
}

static int64_t getBytes(Type type) { return type.getIntOrFloatBitWidth() / 8; }

int64_t LaneSums::countRows(PhaseOp phase, int64_t width) {
  int64_t numSums = getAlongRow(phase).size();
  if (!numSums)
    return 1;
  Type type = getStagedType(cast<ProgramOp>(phase->getParentOp()));
  int64_t rowBytes = numSums * (width + kPadding) * getBytes(type);
  int64_t rows = kStagedBytes / rowBytes;
  return rows ? llvm::bit_floor(uint64_t(rows)) : 0;
}

LaneSums::LaneSums(const Words &w, PhaseOp phase, int64_t width)
    : w(w), phase(phase), width(width), rows(countRows(phase, width)),
      type(getStagedType(cast<ProgramOp>(phase->getParentOp()))),
      alongRow(getAlongRow(phase)) {}

/// The shared memory, which all kernels of the module name.
Value LaneSums::getStaged() const {
  auto space = gpu::AddressSpaceAttr::get(w.b.getContext(),
                                          gpu::AddressSpace::Workgroup);
  auto memory = MemRefType::get({kStagedBytes / getBytes(type)}, type,
                                AffineMap(), space);
  std::string name = ("staged_f" + Twine(8 * getBytes(type))).str();
  Operation *module = SymbolTable::getNearestSymbolTable(
      w.b.getInsertionBlock()->getParentOp());
  if (!SymbolTable::lookupSymbolIn(module, name)) {
    OpBuilder::InsertionGuard guard(w.b);
    w.b.setInsertionPointToStart(&module->getRegion(0).front());
    memref::GlobalOp::create(w.b, module->getLoc(), name,
                             w.b.getStringAttr("private"), memory,
                             w.b.getUnitAttr(), /*constant=*/false,
                             w.b.getI64IntegerAttr(kAccessBytes));
  }
  return memref::GetGlobalOp::create(w.b, w.loc, memory, name);
}

/// The number in the shared memory, an index.
Value LaneSums::getPlace(unsigned place, Value row, Value column) const {
  Value number = w.add(w.constant(place * rows), row);
  return w.add(w.mul(number, w.constant(width + kPadding)), column);
}

void LaneSums::stage(unsigned k, Value value, Value row, Value column) {
  unsigned place = llvm::find(alongRow, k) - alongRow.begin();
  if (getElementTypeOrSelf(value.getType()) != type)
    value = emitWidened(w, value);
  Value index = getPlace(place, row, column);
  if (isa<VectorType>(value.getType()))
    vector::StoreOp::create(w.b, w.loc, value, getStaged(), ValueRange{index},
                            /*nontemporal=*/false,
                            llvm::MaybeAlign(kAccessBytes));
  else
    w.store(value, getStaged(), index);
}

/// Lane `lane` of the first `count` elements of a leaf.
Value LaneSums::emitLane(unsigned place, Value row, Value leaf, Value lane,
                         Value count) {
  auto accumulators = phase.getAccumulators().getAsRange<AccumulatorAttr>();
  Combiner combiner = (*(accumulators.begin() + alongRow[place])).getCombiner();
  Value first = getPlace(place, row, w.mul(leaf, w.constant(STEPC_LEAF)));
  auto loop =
      scf::ForOp::create(w.b, w.loc, lane, count, w.constant(STEPC_LANES),
                         ValueRange{emitNeutral(w, combiner, 0)});
  OpBuilder::InsertionGuard guard(w.b);
  w.b.setInsertionPointToStart(loop.getBody());
  Value value = w.load(getStaged(), w.add(first, loop.getInductionVar()));
  scf::YieldOp::create(w.b, w.loc,
                       emitCombined(w, combiner, loop.getRegionIterArg(0),
                                    emitWidened(w, value)));
  return loop.getResult(0);
}

/// The 16 lanes that threads side by side hold, made one: k and k + 8, k and k
/// + 4, k and k + 2, k and k + 1. All threads of the warp take part.
Value LaneSums::emitFolded(Combiner combiner, Value value) const {
  Type i32 = w.b.getI32Type(), i64 = w.b.getI64Type();
  for (int64_t half = STEPC_LANES / 2; half >= 1; half /= 2) {
    Value bits = arith::BitcastOp::create(w.b, w.loc, i64, value);
    Value upper = arith::ShRUIOp::create(w.b, w.loc, bits, w.constantWord(32));
    auto exchange = [&](Value part) -> Value {
      auto shuffle = gpu::ShuffleOp::create(
          w.b, w.loc, arith::TruncIOp::create(w.b, w.loc, i32, part), half,
          kWarpThreads, gpu::ShuffleMode::XOR);
      return arith::ExtUIOp::create(w.b, w.loc, i64,
                                    shuffle.getShuffleResult());
    };
    Value low = exchange(bits);
    Value high =
        arith::ShLIOp::create(w.b, w.loc, exchange(upper), w.constantWord(32));
    Value other =
        arith::BitcastOp::create(w.b, w.loc, w.b.getF64Type(),
                                 arith::OrIOp::create(w.b, w.loc, low, high));
    value = emitCombined(w, combiner, value, other);
  }
  return value;
}

/// Every thread has a lane of a leaf of a staged row, or takes part in shuffles
/// only.
void LaneSums::emitAccumulator(unsigned place, const TileRunArguments &in,
                               Value first, Value end, Value begin) {
  int64_t leavesOfStrip = width / STEPC_LEAF;
  int64_t lanes = rows * leavesOfStrip * STEPC_LANES;
  int64_t rounded = llvm::alignTo(lanes, kWarpThreads);
  // Accumulators are shared out over the warps too.
  Value thread = w.sub(w.add(emitThread(w), w.constant(kBlockThreads)),
                       w.constant(place * rounded % kBlockThreads));
  thread =
      arith::RemUIOp::create(w.b, w.loc, thread, w.constant(kBlockThreads));
  w.loop(thread, w.constant(rounded), kBlockThreads, [&](Value number) {
    Value lane = w.rem(number, w.constant(STEPC_LANES));
    Value rest = w.div(number, w.constant(STEPC_LANES));
    Value leaf = w.rem(rest, w.constant(leavesOfStrip));
    Value row = w.div(rest, w.constant(leavesOfStrip));
    Value isThere = w.isLess(row, w.sub(end, first));
    Value firstColumn = w.add(begin, w.mul(leaf, w.constant(STEPC_LEAF)));
    Value left = w.min(w.sub(in.cols, firstColumn), w.constant(STEPC_LEAF));
    Value count = w.select(isThere, w.max(left, w.constant(0)), w.constant(0));
    auto accumulator =
        cast<AccumulatorAttr>(phase.getAccumulators()[alongRow[place]]);
    Value sum = emitFolded(accumulator.getCombiner(),
                           emitLane(place, row, leaf, lane, count));
    // The first lane of a leaf that has elements writes.
    auto branch = scf::IfOp::create(w.b, w.loc,
                                    w.isLess(lane, w.min(count, w.constant(1))),
                                    /*withElseRegion=*/false);
    OpBuilder::InsertionGuard guard(w.b);
    w.b.setInsertionPointToStart(branch.thenBlock());
    Value ofRow = w.mul(w.add(first, row), w.toIndex(in.leaves));
    Value index = w.add(ofRow, arith::DivUIOp::create(w.b, w.loc, firstColumn,
                                                      w.constant(STEPC_LEAF)));
    w.store(sum, w.view(in.accumulators[alongRow[place]], w.b.getF64Type()),
            index);
  });
}

void LaneSums::emit(const TileRunArguments &in, Value first, Value end,
                    Value begin) {
  if (isEmpty())
    return;
  emitBarrier(w);
  for (unsigned place = 0; place < alongRow.size(); ++place)
    emitAccumulator(place, in, first, end, begin);
  emitBarrier(w);
}
