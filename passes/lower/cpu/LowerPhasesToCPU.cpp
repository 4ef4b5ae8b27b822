//===- LowerPhasesToCPU.cpp - step-lower-phases-to-cpu --------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/Passes.h"
#include "passes/lower/ElementRow.h"
#include "passes/lower/cpu/RunFunctions.h"
#include "passes/lower/cpu/TileKernel.h"
#include "passes/schedule/Schedule.h"
#include "stepc/kernel_abi.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Builders.h"

namespace mlir::step {
#define GEN_PASS_DEF_LOWERPHASESTOCPU
#include "passes/Passes.h.inc"
} // namespace mlir::step

using namespace mlir;
using namespace mlir::step;

/// How many chunks ahead a kernel prefetches the first lines of a chunk.
static constexpr int64_t kChunksAhead = 4;
/// At most this many lines of each operand of a chunk are prefetched so; the
/// loop over the run takes over from there.
static constexpr int64_t kChunkLines = 16;

namespace {
/// Makes the two entry points of one phase. Everything is 64-bit words read
/// through views; addresses are i64.
class KernelEmitter {
public:
  KernelEmitter(OpBuilder &builder, TraverseOp traverse,
                const ProgramStorage &storage, int64_t prefetchLines)
      : b(builder), traverse(traverse), storage(storage),
        loc(traverse.getLoc()), w(builder, loc),
        operands(getOperands(traverse)), prefetchLines(prefetchLines) {}

  void emit();

private:
  void emitChunkPrefetch(const CallWords &call, Value entry, Value end);
  void emitEntry(StringRef name, function_ref<void(const Chunk &)> emitChunk);
  void emitContiguousChunk(const Chunk &chunk, func::FuncOp run);
  void emitStridedChunk(const Chunk &chunk, func::FuncOp run,
                        func::FuncOp stridedRun);
  void emitStridedSegment(const ElementRow &row, Value rank, Value position,
                          Value length, func::FuncOp run,
                          func::FuncOp stridedRun);

  OpBuilder &b;
  TraverseOp traverse;
  const ProgramStorage &storage;
  Location loc;
  Words w;
  SmallVector<Operand> operands;
  int64_t prefetchLines;
};
} // namespace

/// Asks for the first lines of each operand of the chunk `kChunksAhead` from
/// here, so that many small tensors stream as one large one does. The later
/// chunks of a tensor are asked for by the loop over the one before.
void KernelEmitter::emitChunkPrefetch(const CallWords &call, Value entry,
                                      Value end) {
  Value ahead = w.add(entry, w.constant(kChunksAhead));
  auto prefetch = [&](const Chunk &chunk) {
    ElementRow row(w, operands, chunk.row);
    for (auto [k, operand] : llvm::enumerate(operands)) {
      if (!operand.isTouched())
        continue;
      Value size = w.constantWord(operand.getBytes());
      Value address = row.getAddress(k);
      Value bytes = w.min(w.mul(chunk.length, size),
                          w.constantWord(kChunkLines * kLineBytes));
      bool writes = operand.writes();
      w.loop(w.constant(0), w.toIndex(bytes), kLineBytes, [&](Value offset) {
        PrefetchOp::create(b, loc, w.add(address, w.toWord(offset)), writes);
      });
    }
  };
  w.when(w.isLess(ahead, end), [&] {
    Chunk chunk = readChunk(w, call, ahead);
    w.when(w.isEqual(chunk.start, w.constantWord(0)), [&] { prefetch(chunk); });
  });
}

/// `void name(call, begin, end)`: StepcKernel.
void KernelEmitter::emitEntry(StringRef name,
                              function_ref<void(const Chunk &)> emitChunk) {
  Type i64 = b.getI64Type();
  auto function = func::FuncOp::create(b, loc, name,
                                       b.getFunctionType({i64, i64, i64}, {}));
  OpBuilder::InsertionGuard guard(b);
  Block *entry = function.addEntryBlock();
  b.setInsertionPointToStart(entry);
  CallWords call = CallWords::load(w, entry->getArgument(0));
  Value end = w.toIndex(entry->getArgument(2));
  w.loop(w.toIndex(entry->getArgument(1)), end, 1, [&](Value index) {
    if (prefetchLines)
      emitChunkPrefetch(call, index, end);
    emitChunk(readChunk(w, call, index));
  });
  func::ReturnOp::create(b, loc);
}

void KernelEmitter::emitContiguousChunk(const Chunk &chunk, func::FuncOp run) {
  ElementRow row(w, operands, chunk.row);
  SmallVector<Value> arguments{row.getScalars()};
  for (int64_t k = 0; k < int64_t(operands.size()); ++k)
    arguments.push_back(row.getAddress(k, chunk.start));
  arguments.push_back(w.toIndex(chunk.length));
  func::CallOp::create(b, loc, run, arguments);
}

/// `length` elements from `position` on that lie in one innermost row: at once
/// where every operand is contiguous there, else one by one.
void KernelEmitter::emitStridedSegment(const ElementRow &row, Value rank,
                                       Value position, Value length,
                                       func::FuncOp run,
                                       func::FuncOp stridedRun) {
  SmallVector<Value> offsets = row.emitOffsets(rank, position);
  Value last = w.sub(rank, w.constant(1));
  SmallVector<Value> head{row.getScalars()}, strides;
  Value contiguous = arith::ConstantIntOp::create(b, loc, b.getI1Type(), 1);
  for (auto [k, operand] : llvm::enumerate(operands)) {
    head.push_back(row.getAddress(k, offsets[k]));
    Value stride = row.getStride(rank, k, last);
    contiguous = w.both(contiguous, w.isEqual(stride, w.constantWord(1)));
    strides.push_back(w.mul(stride, w.constantWord(operand.getBytes())));
  }
  SmallVector<Value> arguments(head);
  arguments.push_back(w.toIndex(length));
  head.append(strides);
  head.push_back(arguments.back());
  w.branch(
      contiguous, [&] { func::CallOp::create(b, loc, run, arguments); },
      [&] { func::CallOp::create(b, loc, stridedRun, head); });
}

void KernelEmitter::emitStridedChunk(const Chunk &chunk, func::FuncOp run,
                                     func::FuncOp stridedRun) {
  ElementRow row(w, operands, chunk.row);
  Value rank = row.getRank();
  Value inner = row.getExtent(w.sub(rank, w.constant(1)));
  Value stop = w.add(chunk.start, chunk.length);
  // The rest of this innermost row, or of the chunk.
  auto emitRun = [&](Value position) {
    Value left = w.sub(inner, w.rem(position, inner));
    Value length = w.min(left, w.sub(stop, position));
    emitStridedSegment(row, rank, position, length, run, stridedRun);
    return w.add(position, length);
  };
  w.repeat(
      chunk.start, [&](Value position) { return w.isLess(position, stop); },
      emitRun);
}

void KernelEmitter::emit() {
  std::string name = traverse.getSymName().str();
  func::FuncOp run =
      emitContiguousRun(b, traverse, storage, name + "_run", prefetchLines);
  func::FuncOp stridedRun =
      emitStridedRun(b, traverse, storage, name + "_strided_run");
  emitEntry(name, [&](const Chunk &chunk) { emitContiguousChunk(chunk, run); });
  emitEntry(name + "_strided", [&](const Chunk &chunk) {
    emitStridedChunk(chunk, run, stridedRun);
  });
}

/// The optimizers are erased at the end, so everything in them must have been
/// scheduled, and its scalar phases made functions.
static LogicalResult checkOptimizers(ModuleOp module) {
  SymbolTable symbols(module);
  WalkResult result = module.walk([&](Operation *op) -> WalkResult {
    if (isa<RuleOp>(op))
      return op->emitOpError("is not scheduled");
    auto scalars = dyn_cast<CohortScalarsOp>(op);
    if (scalars && !symbols.lookup<func::FuncOp>(scalars.getSymName()))
      return op->emitOpError("has no function yet");
    return WalkResult::advance();
  });
  return failure(result.wasInterrupted());
}

namespace {
struct LowerPhasesToCPU : step::impl::LowerPhasesToCPUBase<LowerPhasesToCPU> {
  using LowerPhasesToCPUBase::LowerPhasesToCPUBase;

  /// How many entries there are from a kernel's to the last that trails it.
  static size_t getTrainLength(ArrayRef<ScheduleEntry> entries) {
    size_t length = 1;
    while (length < entries.size() && entries[length].isTrailing)
      ++length;
    return length;
  }

  /// The first of the entries; what stands behind it are those after it.
  void emitEntry(OpBuilder &builder, const ProgramStorage &storage,
                 ArrayRef<ScheduleEntry> entries) {
    const ScheduleEntry &entry = entries.front();
    if (!entry.kernel)
      emitFinish(builder, storage, entry.name, entry.finish, entry.isTrailing,
                 avx512);
    else if (storage.getProgram().getElementwise())
      KernelEmitter(builder, entry.kernel, storage, prefetchLines).emit();
    else if (entry.isTrailing)
      emitTileKernels(builder, storage, entry, prefetchLines);
    else
      emitTileKernels(builder, storage,
                      entries.take_front(getTrainLength(entries)),
                      prefetchLines);
  }

  void runOnOperation() override {
    if (failed(checkOptimizers(getOperation())))
      return signalPassFailure();
    OpBuilder builder(&getContext());
    builder.setInsertionPointToEnd(getOperation().getBody());
    getOperation().walk([&](ProgramOp program) {
      if (program.getKernelsOf())
        return;
      ProgramStorage storage(program);
      std::vector<ScheduleEntry> schedule = getSchedule(program);
      for (ArrayRef<ScheduleEntry> left(schedule); !left.empty();
           left = left.drop_front())
        emitEntry(builder, storage, left);
    });
    for (auto optimizer :
         llvm::make_early_inc_range(getOperation().getOps<OptimizerOp>()))
      optimizer.erase();
  }
};
} // namespace
