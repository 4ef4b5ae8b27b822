//===- RunFunctions.cpp - functions over one run of elements --------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/lower/cpu/RunFunctions.h"

using namespace mlir;
using namespace mlir::step;

/// The body on the element, or the vector, number `index` from the addresses.
static void emitBody(BodyEmitter &body, const Words &w, int64_t lanes,
                     ValueRange addresses, Value index) {
  ArrayRef<Operand> operands = body.getOperands();
  body.emit(lanes, {[&](unsigned k) {
                      return emitElement(w, operands[k], lanes, addresses[k],
                                         index);
                    },
                    [&](unsigned k, Value value) {
                      emitStore(w, operands[k].getStorage(), lanes, value,
                                addresses[k], index);
                    },
                    [](unsigned, Value) {}});
}

//===----------------------------------------------------------------------===//
// Loops
//===----------------------------------------------------------------------===//

namespace {
/// How the loops over a contiguous run are cut.
struct LoopShape {
  int64_t lanes; // elements of one vector: 512 bits of the compute type
  int64_t group; // elements of one iteration: one line of the narrowest operand

  LoopShape(ProgramOp program, ArrayRef<Operand> operands) {
    int64_t computeBytes = getBytes(program.getVariant().getCompute());
    int64_t narrowest = computeBytes;
    for (const Operand &operand : operands)
      if (operand.isInMemory())
        narrowest = std::min(narrowest, operand.getBytes());
    lanes = kLineBytes / computeBytes;
    group = kLineBytes / narrowest;
  }
};
} // namespace

/// Asks for the lines that the iteration at `index` of `group` elements will
/// need `lines` lines from there.
static void emitPrefetch(const Words &w, ArrayRef<Operand> operands,
                         ValueRange addresses, Value index, int64_t group,
                         int64_t lines) {
  Value position = w.toWord(index);
  for (auto [operand, address] : llvm::zip(operands, addresses)) {
    if (!operand.isTouched())
      continue;
    int64_t bytes = operand.getBytes();
    Value current = w.add(address, w.mul(position, w.constantWord(bytes)));
    for (int64_t line = 0; line < group * bytes / kLineBytes; ++line) {
      Value ahead = w.constantWord((lines + line) * kLineBytes);
      PrefetchOp::create(w.b, w.loc, w.add(current, ahead), operand.writes());
    }
  }
}

int64_t mlir::step::getLinesAhead(int64_t prefetchLines, int64_t numStreams) {
  return prefetchLines / std::max<int64_t>(numStreams, 1);
}

func::FuncOp mlir::step::emitContiguousRun(OpBuilder &builder,
                                           TraverseOp traverse,
                                           const ProgramStorage &storage,
                                           StringRef name,
                                           int64_t prefetchLines) {
  Location loc = traverse.getLoc();
  OpBuilder::InsertionGuard guard(builder);
  BodyEmitter body(builder, traverse, storage);
  ArrayRef<Operand> operands = body.getOperands();
  int64_t numOperands = operands.size();
  func::FuncOp function =
      makeInternalFunction(builder, loc, name, 1 + numOperands, 1);
  Block &entry = function.getBody().front();
  builder.setInsertionPointToStart(&entry);
  body.fixScalars(entry.getArgument(0), Value());
  ValueRange addresses = entry.getArguments().slice(1, numOperands);
  Value count = entry.getArguments().back();

  Words w(builder, loc);
  LoopShape shape(storage.getProgram(), operands);
  Value zero = w.constant(0);
  Value groups = w.floorTo(count, shape.group);
  Value vectors = w.floorTo(count, shape.lanes);
  auto emitGroup = [&](Value index) {
    for (int64_t lane = 0; lane < shape.group; lane += shape.lanes) {
      Value position = w.add(index, w.constant(lane));
      emitBody(body, w, shape.lanes, addresses, position);
    }
  };
  // The prefetching loop runs on long runs only, the plain one on what it left.
  Value plainBegin = zero;
  int64_t linesAhead = getLinesAhead(
      prefetchLines, llvm::count_if(operands, [](const Operand &operand) {
        return operand.isTouched();
      }));
  if (linesAhead) {
    Value shortRun = w.constant(kShortRun);
    Value isLong = arith::CmpIOp::create(
        builder, loc, arith::CmpIPredicate::sge, count, shortRun);
    Value longEnd = w.select(isLong, groups, zero);
    w.loop(zero, longEnd, shape.group, [&](Value index) {
      emitPrefetch(w, operands, addresses, index, shape.group, linesAhead);
      emitGroup(index);
    });
    plainBegin = longEnd;
  }
  w.loop(plainBegin, groups, shape.group, emitGroup);
  if (shape.group != shape.lanes)
    w.loop(groups, vectors, shape.lanes, [&](Value index) {
      emitBody(body, w, shape.lanes, addresses, index);
    });
  w.loop(vectors, count, 1,
         [&](Value index) { emitBody(body, w, 0, addresses, index); });
  func::ReturnOp::create(builder, loc);
  return function;
}

func::FuncOp mlir::step::emitStridedRun(OpBuilder &builder, TraverseOp traverse,
                                        const ProgramStorage &storage,
                                        StringRef name) {
  Location loc = traverse.getLoc();
  OpBuilder::InsertionGuard guard(builder);
  BodyEmitter body(builder, traverse, storage);
  int64_t numOperands = body.getOperands().size();
  func::FuncOp function =
      makeInternalFunction(builder, loc, name, 1 + 2 * numOperands, 1);
  Block &entry = function.getBody().front();
  builder.setInsertionPointToStart(&entry);
  body.fixScalars(entry.getArgument(0), Value());
  ValueRange addresses = entry.getArguments().slice(1, numOperands);
  ValueRange strides = entry.getArguments().slice(1 + numOperands, numOperands);
  Words w(builder, loc);
  Value zero = w.constant(0);
  w.loop(zero, entry.getArguments().back(), 1, [&](Value i) {
    Value position = w.toWord(i);
    SmallVector<Value> elements;
    for (auto [address, stride] : llvm::zip(addresses, strides))
      elements.push_back(w.add(address, w.mul(position, stride)));
    emitBody(body, w, 0, elements, zero);
  });
  func::ReturnOp::create(builder, loc);
  return function;
}
