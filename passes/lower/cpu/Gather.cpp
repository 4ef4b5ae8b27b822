//===- Gather.cpp - strided elements to and from the stack ----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/lower/cpu/Gather.h"

using namespace mlir;
using namespace mlir::step;

Value mlir::step::emitStackBuffer(const Words &w, int64_t bytes) {
  auto type = MemRefType::get({bytes / 8}, w.b.getI64Type());
  Value memory =
      memref::AllocaOp::create(w.b, w.loc, type, w.b.getI64IntegerAttr(64));
  Value address =
      memref::ExtractAlignedPointerAsIndexOp::create(w.b, w.loc, memory);
  return w.toWord(address);
}

/// The offset in elements of the element at `position`, a word, in row-major
/// order.
static Value emitOffset(const Words &w, const StridedMemory &memory,
                        Value position) {
  Value rank = w.toIndex(memory.rank);
  Value extents = w.words(memory.extents), strides = w.words(memory.strides);
  // From the innermost dim outward.
  auto addDim = [&](Value number, ValueRange values) -> SmallVector<Value> {
    Value offset = values[0], rest = values[1];
    Value dim = w.sub(rank, w.add(number, w.constant(1)));
    Value extent = w.load(extents, dim);
    Value part = w.mul(w.rem(rest, extent), w.load(strides, dim));
    return {w.add(offset, part), w.div(rest, extent)};
  };
  return w.foldAll(w.constant(0), rank, w.constant(1),
                   {w.constantWord(0), position}, addDim)[0];
}

/// Calls `emitCopy(strided view's index, dense index)` for each element, run by
/// run of the innermost dim.
static void emitRuns(const Words &w, const StridedMemory &memory, Value first,
                     Value count, function_ref<void(Value, Value)> emitCopy) {
  Value last = w.toIndex(w.sub(memory.rank, w.constantWord(1)));
  Value inner = w.load(w.words(memory.extents), last);
  Value stride = w.load(w.words(memory.strides), last);
  // The rest of this innermost row, or of all.
  auto emitRun = [&](Value done) {
    Value position = w.add(first, done);
    Value left = w.sub(inner, w.rem(position, inner));
    Value length = w.min(left, w.sub(count, done));
    Value offset = emitOffset(w, memory, position);
    w.loop(w.constant(0), w.toIndex(length), 1, [&](Value i) {
      Value word = w.toWord(i);
      emitCopy(w.toIndex(w.add(offset, w.mul(word, stride))),
               w.toIndex(w.add(done, word)));
    });
    return w.add(done, length);
  };
  w.repeat(
      w.constantWord(0), [&](Value done) { return w.isLess(done, count); },
      emitRun);
}

static Type getBits(const Words &w, const StridedMemory &memory) {
  return w.b.getIntegerType(memory.elementBytes * 8);
}

/// Calls the function `name` that all kernels share, and that copies elements
/// of that size.
static void
emitShared(const Words &w, StringRef name, const StridedMemory &memory,
           Value first, Value count, Value dense,
           function_ref<void(const Words &, const StridedMemory &, ValueRange)>
               emitBody) {
  std::string full = (name + Twine(memory.elementBytes)).str();
  func::FuncOp function =
      getSharedFunction(w, full, 7, 0, [&](const Words &inner, ValueRange in) {
        StridedMemory own{in[0], in[1], in[2], in[3], memory.elementBytes};
        emitBody(inner, own, in.drop_front(4));
      });
  func::CallOp::create(w.b, w.loc, function,
                       ValueRange{memory.address, memory.rank, memory.extents,
                                  memory.strides, first, count, dense});
}

void mlir::step::emitGather(const Words &w, const StridedMemory &memory,
                            Value first, Value count, Value to) {
  emitShared(w, "gather", memory, first, count, to,
             [](const Words &w, const StridedMemory &memory, ValueRange in) {
               Value strided = w.view(memory.address, getBits(w, memory));
               Value dense = w.view(in[2], getBits(w, memory));
               emitRuns(w, memory, in[0], in[1], [&](Value from, Value index) {
                 w.store(w.load(strided, from), dense, index);
               });
             });
}

void mlir::step::emitScatter(const Words &w, const StridedMemory &memory,
                             Value first, Value count, Value from) {
  emitShared(w, "scatter", memory, first, count, from,
             [](const Words &w, const StridedMemory &memory, ValueRange in) {
               Value strided = w.view(memory.address, getBits(w, memory));
               Value dense = w.view(in[2], getBits(w, memory));
               emitRuns(w, memory, in[0], in[1], [&](Value to, Value index) {
                 w.store(w.load(dense, index), strided, to);
               });
             });
}

void mlir::step::emitAddresses(const Words &w, const StridedMemory &memory,
                               Value first, Value count, Value to) {
  emitShared(w, "addresses", memory, first, count, to,
             [](const Words &w, const StridedMemory &memory, ValueRange in) {
               Value size = w.constantWord(memory.elementBytes);
               emitRuns(w, memory, in[0], in[1], [&](Value from, Value index) {
                 Value bytes = w.mul(w.toWord(from), size);
                 w.store(w.add(memory.address, bytes), w.words(in[2]), index);
               });
             });
}
