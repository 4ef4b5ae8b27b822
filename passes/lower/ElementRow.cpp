//===- ElementRow.cpp - a row of the table in the elements space ----------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/lower/ElementRow.h"

#include "stepc/kernel_abi.h"

#include <cstddef>

using namespace mlir;
using namespace mlir::step;

static_assert(offsetof(StepcCall, table) == 0 &&
                  offsetof(StepcCall, rowWords) == 8 &&
                  offsetof(StepcCall, chunks) == 16 &&
                  offsetof(StepcCall, workspace) == 24 &&
                  offsetof(StepcCall, routines) == 32 &&
                  offsetof(StepcRoutines, eigenvectors) == 0 &&
                  sizeof(StepcCall) == 40 && sizeof(StepcChunk) == 24,
              "the kernels read these structures as 64-bit words");

CallWords CallWords::load(const Words &w, Value call) {
  Value words = w.words(call);
  return {w.load(words, int64_t(0)), w.load(words, 1), w.load(words, 2),
          w.load(words, 3), w.load(words, 4)};
}

Chunk mlir::step::readChunk(const Words &w, const CallWords &call,
                            Value entry) {
  Value chunks = w.words(call.chunks);
  Value first = w.mul(entry, w.constant(3));
  Value rowBytes = w.mul(call.rowWords, w.constantWord(8));
  Value row = w.add(call.table, w.mul(w.load(chunks, first), rowBytes));
  return {row, w.load(chunks, w.add(first, w.constant(1))),
          w.load(chunks, w.add(first, w.constant(2)))};
}

Value ElementRow::getScalars() const { return w.load(row, STEPC_ROW_SCALARS); }

Value ElementRow::getAddress(int64_t k) const {
  return w.load(row, STEPC_ROW_OPERANDS + k);
}

Value ElementRow::getAddress(int64_t k, Value position) const {
  Value size = w.constantWord(operands[k].getBytes());
  return w.add(getAddress(k), w.mul(position, size));
}

Value ElementRow::getRank() const {
  return w.toIndex(w.load(row, STEPC_ROW_RANK));
}

Value ElementRow::extentIndex(Value dim) const {
  return w.add(w.constant(STEPC_ROW_OPERANDS + operands.size()), dim);
}

Value ElementRow::getExtent(Value dim) const {
  return w.load(row, extentIndex(dim));
}

Value ElementRow::getStride(Value rank, int64_t k, Value dim) const {
  Value before = w.mul(rank, w.constant(k + 1));
  return w.load(row, w.add(extentIndex(before), dim));
}

/// Those of operands [begin, end).
static void emitSomeOffsets(const Words &w, Value rank, Value position,
                            int64_t begin, int64_t end,
                            function_ref<Value(Value)> getExtent,
                            function_ref<Value(int64_t, Value)> getStride,
                            SmallVector<Value> &offsets) {
  SmallVector<Value> state(end - begin, w.constantWord(0));
  state.push_back(position);
  // From the innermost dim outward.
  auto addDim = [&](Value number, ValueRange before) {
    Value dim = w.sub(rank, w.add(number, w.constant(1)));
    Value extent = getExtent(dim);
    Value rest = before.back();
    Value coordinate = w.rem(rest, extent);
    SmallVector<Value> next;
    for (int64_t k = begin; k < end; ++k)
      next.push_back(
          w.add(before[k - begin], w.mul(coordinate, getStride(k, dim))));
    next.push_back(w.div(rest, extent));
    return next;
  };
  state = w.foldAll(w.constant(0), rank, w.constant(1), state, addDim);
  llvm::append_range(offsets, ArrayRef(state).drop_back());
}

SmallVector<Value>
mlir::step::emitOffsets(const Words &w, Value rank, Value position,
                        int64_t count, function_ref<Value(Value)> getExtent,
                        function_ref<Value(int64_t, Value)> getStride) {
  // To simplify a loop takes time by the cube of what it carries.
  constexpr int64_t kMost = 32;
  SmallVector<Value> offsets;
  for (int64_t begin = 0; begin < count; begin += kMost)
    emitSomeOffsets(w, rank, position, begin, std::min(begin + kMost, count),
                    getExtent, getStride, offsets);
  return offsets;
}

SmallVector<Value> ElementRow::emitOffsets(Value rank, Value position) const {
  return mlir::step::emitOffsets(
      w, rank, position, operands.size(),
      [&](Value dim) { return getExtent(dim); },
      [&](int64_t k, Value dim) { return getStride(rank, k, dim); });
}
