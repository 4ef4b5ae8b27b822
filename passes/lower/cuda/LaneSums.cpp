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
/// All that a kernel may have without asking when it is launched, and the rest
/// of it: for lanes that wait.
static constexpr int64_t kSharedBytes = 48 * 1024;
static constexpr int64_t kWaitingBytes = kSharedBytes - kStagedBytes;

static SmallVector<unsigned> getAlongRow(ArrayRef<Accumulator> accumulators) {
  SmallVector<unsigned> found;
  for (auto [k, accumulator] : llvm::enumerate(accumulators))
    if (accumulator.is(Leaves::Lanes))
      found.push_back(k);
  return found;
}

/// The type in which a program's values are staged, for all of its kernels
/// share the memory: that of the values, f64 where they differ.
static Type getStagedType(ProgramOp program) {
  Type type;
  program.walk([&](TraverseOp traverse) {
    auto values = traverse.getBody().front().getTerminator()->getOperandTypes();
    SmallVector<Accumulator> accumulators = getAccumulators(traverse);
    for (unsigned k : getAlongRow(accumulators)) {
      Type own = values[accumulators[k].yielded];
      type =
          !type || type == own ? own : Float64Type::get(traverse.getContext());
    }
  });
  return type;
}

std::optional<LaneSums::Staging> LaneSums::getStaging(TraverseOp traverse,
                                                      int64_t width) {
  int64_t numSums = getAlongRow(getAccumulators(traverse)).size();
  if (!numSums)
    return Staging{1, width};
  Type type = getStagedType(cast<ProgramOp>(traverse->getParentOp()));
  auto countRows = [&](int64_t columns) {
    return kStagedBytes / (numSums * (columns + kPadding) * getBytes(type));
  };
  if (int64_t rows = countRows(width))
    return Staging{int64_t(llvm::bit_floor(uint64_t(rows))), width};
  int64_t columns = width;
  while (columns > STEPC_LANES && !countRows(columns))
    columns /= 2;
  int64_t waiting = columns < STEPC_LEAF ? numSums * STEPC_LANES * 8 : 0;
  if (!countRows(columns) || waiting > kWaitingBytes)
    return std::nullopt;
  return Staging{1, columns};
}

LaneSums::LaneSums(const Words &w, TraverseOp traverse, int64_t width)
    : w(w), accumulators(getAccumulators(traverse)), width(width),
      staging(*getStaging(traverse, width)),
      type(getStagedType(cast<ProgramOp>(traverse->getParentOp()))),
      alongRow(getAlongRow(accumulators)) {
  llvm::stable_sort(alongRow, [&](unsigned a, unsigned b) {
    return getCombiner(a) < getCombiner(b);
  });
  for (auto [place, k] : llvm::enumerate(alongRow)) {
    if (groups.empty() || groups.back().combiner != getCombiner(k))
      groups.push_back({getCombiner(k), unsigned(place), 0, countThreads()});
    ++groups.back().count;
  }
}

/// Threads of the lanes of one accumulator.
int64_t LaneSums::countLanes() const {
  int64_t leaves = std::max<int64_t>(staging.columns / STEPC_LEAF, 1);
  return staging.rows * leaves * STEPC_LANES;
}

/// Threads of a group: whole warps, which fold lanes.
int64_t LaneSums::countThreads(const Group &group) const {
  return llvm::alignTo(group.count * countLanes(), kWarpThreads);
}

/// Those of all groups so far.
int64_t LaneSums::countThreads() const {
  int64_t count = 0;
  for (const Group &group : groups)
    count += countThreads(group);
  return count;
}

/// Whether a leaf is added up in parts.
bool LaneSums::leavesWait() const { return staging.columns < STEPC_LEAF; }

/// Shared memory, which all kernels of the module that need it name.
Value LaneSums::getMemory(StringRef name, int64_t count, Type element) const {
  auto space = gpu::AddressSpaceAttr::get(w.b.getContext(),
                                          gpu::AddressSpace::Workgroup);
  auto memory = MemRefType::get({count}, element, AffineMap(), space);
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

Value LaneSums::getStaged() const {
  std::string name = ("staged_f" + Twine(8 * getBytes(type))).str();
  return getMemory(name, kStagedBytes / getBytes(type), type);
}

/// An f64 for each thread that has a lane.
Value LaneSums::getWaiting() const {
  int64_t count = countThreads();
  return getMemory(("waiting_" + Twine(count)).str(), count, w.b.getF64Type());
}

/// The number in the shared memory, an index.
Value LaneSums::getPlace(Value place, Value row, Value column) const {
  Value number = w.add(w.mul(place, w.constant(staging.rows)), row);
  Value pitch = w.constant(staging.columns + kPadding);
  return w.add(w.mul(number, pitch), column);
}

void LaneSums::stage(unsigned k, Value value, Value row, Value column) {
  Value place = w.constant(llvm::find(alongRow, k) - alongRow.begin());
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

/// What a lane has of what is staged of its leaf, on top of `sum`.
Value LaneSums::emitLane(const Group &group, const Lane &lane, Value sum) {
  Value column = w.mul(lane.leaf, w.constant(STEPC_LEAF));
  Value first = getPlace(lane.place, lane.row, column);
  return w.fold(lane.number, lane.count, STEPC_LANES, sum,
                [&](Value number, Value before) {
                  Value value = w.load(getStaged(), w.add(first, number));
                  return emitCombined(w, group.combiner, before,
                                      emitWidened(w, value));
                });
}

/// The 16 lanes that threads side by side hold, made one: k and k + 8, k and k
/// + 4, k and k + 2, k and k + 1. All threads of the warp take part.
Value LaneSums::emitFolded(Combiner combiner, Value value) const {
  Type i32 = w.b.getI32Type(), i64 = w.b.getI64Type();
  for (int64_t half = STEPC_LANES / 2; half >= 1; half /= 2) {
    Value bits = w.toBits(value);
    Value upper = w.shiftRight(bits, 32);
    auto exchange = [&](Value part) -> Value {
      auto shuffle = gpu::ShuffleOp::create(
          w.b, w.loc, arith::TruncIOp::create(w.b, w.loc, i32, part), half,
          kWarpThreads, gpu::ShuffleMode::XOR);
      return arith::ExtUIOp::create(w.b, w.loc, i64,
                                    shuffle.getShuffleResult());
    };
    Value low = exchange(bits), high = w.shiftLeft(exchange(upper), 32);
    Value other = w.toNumber(w.either(low, high));
    value = emitCombined(w, combiner, value, other);
  }
  return value;
}

/// The lanes of a leaf of which all is added up become one, its sum. It is
/// written where the leaf has an element.
void LaneSums::emitLeaf(const Group &group, const TileRunArguments &in,
                        Value first, const Lane &lane, Value sum) {
  sum = emitFolded(group.combiner, sum);
  w.when(w.isLess(lane.number, w.min(lane.count, w.constant(1))), [&] {
    Value ofRow = w.mul(w.add(first, lane.row), w.toIndex(in.leaves));
    Value index = w.add(ofRow, w.div(lane.firstColumn, w.constant(STEPC_LEAF)));
    Value partials = in.accumulators[alongRow[group.first]];
    for (unsigned place = group.first + 1; place < group.first + group.count;
         ++place)
      partials = w.select(w.isLess(lane.place, w.constant(place)), partials,
                          in.accumulators[alongRow[place]]);
    w.store(sum, w.view(partials, w.b.getF64Type()), index);
  });
}

/// A part of a leaf of the only row. The same thread has the lane in all parts
/// of it; `own` is its place among those that wait.
void LaneSums::emitWaiting(const Group &group, const TileRunArguments &in,
                           Value first, const Lane &lane, Value own) {
  Value end = w.add(lane.firstColumn, w.constant(staging.columns));
  auto isBegin = [&](Value column) {
    return w.isEqual(w.rem(column, w.constant(STEPC_LEAF)), w.constant(0));
  };
  Value sum =
      w.select(isBegin(lane.firstColumn), emitNeutral(w, group.combiner, 0),
               w.load(getWaiting(), own));
  sum = emitLane(group, lane, sum);
  // A part has an element, so its leaf has.
  Value isLast =
      w.either(isBegin(end), w.isLess(w.sub(in.cols, w.constant(1)), end));
  w.branch(
      isLast, [&] { emitLeaf(group, in, first, lane, sum); },
      [&] { w.store(sum, getWaiting(), own); });
}

/// Which lane a thread has, and how many elements are in what is staged of its
/// leaf.
LaneSums::Lane LaneSums::locateLane(const Group &group,
                                    const TileRunArguments &in, Value rows,
                                    Value begin, Value number) const {
  int64_t most = std::min<int64_t>(staging.columns, STEPC_LEAF);
  int64_t leaves = staging.columns / most;
  Lane lane;
  lane.number = w.rem(number, w.constant(STEPC_LANES));
  Value rest = w.div(number, w.constant(STEPC_LANES));
  lane.leaf = w.rem(rest, w.constant(leaves));
  rest = w.div(rest, w.constant(leaves));
  lane.row = w.rem(rest, w.constant(staging.rows));
  lane.place =
      w.add(w.div(rest, w.constant(staging.rows)), w.constant(group.first));
  lane.firstColumn = w.add(begin, w.mul(lane.leaf, w.constant(STEPC_LEAF)));
  Value isThere = w.isLess(lane.row, rows);
  if (countThreads(group) != group.count * countLanes())
    isThere = w.both(
        isThere, w.isLess(lane.place, w.constant(group.first + group.count)));
  Value left = w.min(w.sub(in.cols, lane.firstColumn), w.constant(most));
  lane.count = w.select(isThere, w.max(left, w.constant(0)), w.constant(0));
  return lane;
}

/// Every thread has a lane of a leaf of a staged row, or takes part in shuffles
/// only.
void LaneSums::emitGroup(const Group &group, const TileRunArguments &in,
                         Value first, Value end, Value begin) {
  // Groups are shared out over the warps too.
  Value thread = w.sub(w.add(emitThread(w), w.constant(kBlockThreads)),
                       w.constant(group.firstThread % kBlockThreads));
  thread = w.rem(thread, w.constant(kBlockThreads));
  w.loop(thread, w.constant(countThreads(group)), kBlockThreads,
         [&](Value number) {
           Lane lane = locateLane(group, in, w.sub(end, first), begin, number);
           if (leavesWait()) {
             Value own = w.add(w.constant(group.firstThread), number);
             return emitWaiting(group, in, first, lane, own);
           }
           Value neutral = emitNeutral(w, group.combiner, 0);
           emitLeaf(group, in, first, lane, emitLane(group, lane, neutral));
         });
}

void LaneSums::emit(const TileRunArguments &in, Value first, Value end,
                    Value begin) {
  if (isEmpty())
    return;
  emitBarrier(w);
  for (const Group &group : groups)
    emitGroup(group, in, first, end, begin);
  emitBarrier(w);
}
