//===- LowerPhasesToCPU.cpp - step-lower-phases-to-cpu --------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/Passes.h"
#include "passes/lower/cpu/RunFunctions.h"
#include "passes/lower/cpu/TileKernel.h"
#include "passes/schedule/Schedule.h"
#include "stepc/kernel_abi.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Builders.h"

#include <cstddef>

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

static_assert(offsetof(StepcCall, table) == 0 &&
                  offsetof(StepcCall, rowWords) == 8 &&
                  offsetof(StepcCall, chunks) == 16 && sizeof(StepcChunk) == 24,
              "the kernels read these structures as 64-bit words");

namespace {
/// Makes the two entry points of one phase. Everything is 64-bit words read
/// through views; addresses are i64.
class KernelEmitter {
public:
  KernelEmitter(OpBuilder &builder, PhaseOp phase, int64_t prefetchLines)
      : b(builder), phase(phase), loc(phase.getLoc()),
        operands(phase.getOperands().getAsRange<OperandAttr>()),
        prefetchLines(prefetchLines) {}

  void emit();

private:
  Value word(Value view, Value index) {
    return memref::LoadOp::create(b, loc, view, ValueRange{index});
  }
  Value word(Value view, int64_t index) { return word(view, constant(index)); }
  Value constant(int64_t value) {
    return arith::ConstantIndexOp::create(b, loc, value);
  }
  Value constantWord(int64_t value) {
    return arith::ConstantIntOp::create(b, loc, b.getI64Type(), value);
  }
  Value words(Value address) {
    return ViewOp::create(
        b, loc, MemRefType::get({ShapedType::kDynamic}, b.getI64Type()),
        address);
  }
  Value toIndex(Value word) {
    return arith::IndexCastOp::create(b, loc, b.getIndexType(), word);
  }
  Value add(Value x, Value y) { return arith::AddIOp::create(b, loc, x, y); }
  Value mul(Value x, Value y) { return arith::MulIOp::create(b, loc, x, y); }

  /// What a chunk's entry says.
  struct Chunk {
    Value row, start, length; // the row as a view of words
  };
  Chunk readChunk(Value call, Value entry);
  void emitChunkPrefetch(Value call, Value entry, Value end);
  void emitEntry(StringRef name, function_ref<void(const Chunk &)> emitChunk);
  void emitContiguousChunk(const Chunk &chunk, func::FuncOp run);
  void emitStridedChunk(const Chunk &chunk, func::FuncOp run,
                        func::FuncOp stridedRun);
  void emitStridedSegment(const Chunk &chunk, Value rank, Value position,
                          Value length, func::FuncOp run,
                          func::FuncOp stridedRun);
  SmallVector<Value> emitOffsets(const Chunk &chunk, Value rank,
                                 Value position);
  Value extentIndex(Value dim) {
    return add(constant(STEPC_ROW_OPERANDS + operands.size()), dim);
  }
  /// Index of the word with operand `k`'s stride of `dim`.
  Value strideIndex(Value rank, int64_t k, Value dim) {
    return add(extentIndex(mul(rank, constant(k + 1))), dim);
  }

  OpBuilder &b;
  PhaseOp phase;
  Location loc;
  SmallVector<OperandAttr> operands;
  int64_t prefetchLines;
};
} // namespace

KernelEmitter::Chunk KernelEmitter::readChunk(Value call, Value entry) {
  Value callWords = words(call);
  Value table = word(callWords, int64_t(0));
  Value rowWords = word(callWords, 1);
  Value chunks = words(word(callWords, 2));
  Value first = mul(entry, constant(3));
  Value rowBytes = mul(rowWords, constantWord(8));
  Value row = add(table, mul(word(chunks, first), rowBytes));
  return {words(row), word(chunks, add(first, constant(1))),
          word(chunks, add(first, constant(2)))};
}

/// Asks for the first lines of each operand of the chunk `kChunksAhead` from
/// here, so that many small tensors stream as one large one does. The later
/// chunks of a tensor are asked for by the loop over the one before.
void KernelEmitter::emitChunkPrefetch(Value call, Value entry, Value end) {
  Value ahead = add(entry, constant(kChunksAhead));
  Value exists =
      arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, ahead, end);
  auto branch = scf::IfOp::create(b, loc, exists, /*withElse=*/false);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  Chunk chunk = readChunk(call, ahead);
  Value isFirst = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq,
                                        chunk.start, constantWord(0));
  auto first = scf::IfOp::create(b, loc, isFirst, /*withElse=*/false);
  b.setInsertionPointToStart(first.thenBlock());
  for (auto [k, operand] : llvm::enumerate(operands)) {
    if (!operand.getReads() && !operand.getWrites())
      continue;
    Value size = constantWord(getElementBytes(operand));
    Value address = word(chunk.row, STEPC_ROW_OPERANDS + k);
    Value bytes =
        arith::MinSIOp::create(b, loc, mul(chunk.length, size),
                               constantWord(kChunkLines * kLineBytes));
    auto loop = scf::ForOp::create(b, loc, constant(0), toIndex(bytes),
                                   constant(kLineBytes));
    OpBuilder::InsertionGuard inner(b);
    b.setInsertionPointToStart(loop.getBody());
    Value offset = arith::IndexCastOp::create(b, loc, b.getI64Type(),
                                              loop.getInductionVar());
    PrefetchOp::create(b, loc, add(address, offset), operand.getWrites());
  }
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
  Value call = entry->getArgument(0);
  Value end = toIndex(entry->getArgument(2));
  auto loop = scf::ForOp::create(b, loc, toIndex(entry->getArgument(1)), end,
                                 constant(1));
  {
    OpBuilder::InsertionGuard inner(b);
    b.setInsertionPointToStart(loop.getBody());
    if (prefetchLines)
      emitChunkPrefetch(call, loop.getInductionVar(), end);
    emitChunk(readChunk(call, loop.getInductionVar()));
  }
  func::ReturnOp::create(b, loc);
}

void KernelEmitter::emitContiguousChunk(const Chunk &chunk, func::FuncOp run) {
  SmallVector<Value> arguments{word(chunk.row, STEPC_ROW_SCALARS)};
  for (auto [k, operand] : llvm::enumerate(operands))
    arguments.push_back(
        add(word(chunk.row, STEPC_ROW_OPERANDS + k),
            mul(chunk.start, constantWord(getElementBytes(operand)))));
  arguments.push_back(toIndex(chunk.length));
  func::CallOp::create(b, loc, run, arguments);
}

/// The offset in elements, for each operand, of the element at `position`.
SmallVector<Value> KernelEmitter::emitOffsets(const Chunk &chunk, Value rank,
                                              Value position) {
  SmallVector<Value> state(operands.size(), constantWord(0));
  state.push_back(position);
  auto loop = scf::ForOp::create(b, loc, constant(0), rank, constant(1), state);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  // From the innermost dim outward.
  Value fromLast = add(loop.getInductionVar(), constant(1));
  Value dim = arith::SubIOp::create(b, loc, rank, fromLast);
  Value extent = word(chunk.row, extentIndex(dim));
  Value rest = loop.getRegionIterArgs().back();
  Value coordinate = arith::RemUIOp::create(b, loc, rest, extent);
  SmallVector<Value> next;
  for (int64_t k = 0; k < int64_t(operands.size()); ++k) {
    Value stride = word(chunk.row, strideIndex(rank, k, dim));
    next.push_back(add(loop.getRegionIterArg(k), mul(coordinate, stride)));
  }
  next.push_back(arith::DivUIOp::create(b, loc, rest, extent));
  scf::YieldOp::create(b, loc, next);
  return SmallVector<Value>(loop.getResults().drop_back());
}

/// `length` elements from `position` on that lie in one innermost row: at once
/// where every operand is contiguous there, else one by one.
void KernelEmitter::emitStridedSegment(const Chunk &chunk, Value rank,
                                       Value position, Value length,
                                       func::FuncOp run,
                                       func::FuncOp stridedRun) {
  SmallVector<Value> offsets = emitOffsets(chunk, rank, position);
  Value last = arith::SubIOp::create(b, loc, rank, constant(1));
  SmallVector<Value> head{word(chunk.row, STEPC_ROW_SCALARS)}, strides;
  Value contiguous = arith::ConstantIntOp::create(b, loc, b.getI1Type(), 1);
  for (auto [k, operand] : llvm::enumerate(operands)) {
    Value size = constantWord(getElementBytes(operand));
    head.push_back(
        add(word(chunk.row, STEPC_ROW_OPERANDS + k), mul(offsets[k], size)));
    Value stride = word(chunk.row, strideIndex(rank, k, last));
    Value unit = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, stride,
                                       constantWord(1));
    contiguous = arith::AndIOp::create(b, loc, contiguous, unit);
    strides.push_back(mul(stride, size));
  }
  auto branch = scf::IfOp::create(b, loc, contiguous, /*withElse=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  SmallVector<Value> arguments(head);
  arguments.push_back(toIndex(length));
  func::CallOp::create(b, loc, run, arguments);
  b.setInsertionPointToStart(branch.elseBlock());
  arguments = head;
  arguments.append(strides);
  arguments.push_back(toIndex(length));
  func::CallOp::create(b, loc, stridedRun, arguments);
}

void KernelEmitter::emitStridedChunk(const Chunk &chunk, func::FuncOp run,
                                     func::FuncOp stridedRun) {
  Type i64 = b.getI64Type();
  Value rank = toIndex(word(chunk.row, STEPC_ROW_RANK));
  Value last = arith::SubIOp::create(b, loc, rank, constant(1));
  Value inner = word(chunk.row, extentIndex(last));
  Value stop = add(chunk.start, chunk.length);
  // while (position < stop): the rest of this innermost row, or of the chunk.
  auto loop =
      scf::WhileOp::create(b, loc, TypeRange{i64}, ValueRange{chunk.start});
  OpBuilder::InsertionGuard guard(b);
  Block *before = b.createBlock(&loop.getBefore(), {}, {i64}, {loc});
  Value more = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt,
                                     before->getArgument(0), stop);
  scf::ConditionOp::create(b, loc, more, before->getArguments());
  Block *after = b.createBlock(&loop.getAfter(), {}, {i64}, {loc});
  Value position = after->getArgument(0);
  Value done = arith::RemUIOp::create(b, loc, position, inner);
  Value left = arith::SubIOp::create(b, loc, inner, done);
  Value wanted = arith::SubIOp::create(b, loc, stop, position);
  Value length = arith::MinSIOp::create(b, loc, left, wanted);
  emitStridedSegment(chunk, rank, position, length, run, stridedRun);
  scf::YieldOp::create(b, loc, ValueRange{add(position, length)});
}

void KernelEmitter::emit() {
  std::string name = phase.getSymName().str();
  func::FuncOp run = emitContiguousRun(b, phase, name + "_run", prefetchLines);
  func::FuncOp stridedRun = emitStridedRun(b, phase, name + "_strided_run");
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
    auto scalars = dyn_cast<ScalarPhaseOp>(op);
    if (scalars && !symbols.lookup<func::FuncOp>(scalars.getSymName()))
      return op->emitOpError("has no function yet");
    return WalkResult::advance();
  });
  return failure(result.wasInterrupted());
}

namespace {
struct LowerPhasesToCPU : step::impl::LowerPhasesToCPUBase<LowerPhasesToCPU> {
  using LowerPhasesToCPUBase::LowerPhasesToCPUBase;

  void emitEntry(OpBuilder &builder, ProgramOp program,
                 const ScheduleEntry &entry) {
    if (!entry.kernel)
      emitFinish(builder, program, entry.name, entry.finish);
    else if (program.isTiled())
      emitTileKernels(builder, entry.kernel, prefetchLines);
    else
      KernelEmitter(builder, entry.kernel, prefetchLines).emit();
  }

  void runOnOperation() override {
    if (failed(checkOptimizers(getOperation())))
      return signalPassFailure();
    OpBuilder builder(&getContext());
    builder.setInsertionPointToEnd(getOperation().getBody());
    getOperation().walk([&](ProgramOp program) {
      for (const ScheduleEntry &entry : getSchedule(program))
        emitEntry(builder, program, entry);
    });
    for (auto optimizer :
         llvm::make_early_inc_range(getOperation().getOps<OptimizerOp>()))
      optimizer.erase();
  }
};
} // namespace
