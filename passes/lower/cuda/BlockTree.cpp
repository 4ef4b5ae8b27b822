//===- BlockTree.cpp - the fixed order of additions, by a block -----------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/lower/cuda/BlockTree.h"

#include "passes/lower/cuda/GridKernel.h"
#include "stepc/kernel_abi.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"

using namespace mlir;
using namespace mlir::step;

/// Entries that a thread combines between two barriers: three levels of the
/// tree, with all of its loads under way at once.
static constexpr int64_t kRadix = 8;

void mlir::step::emitBarrier(const Words &w) {
  gpu::BarrierOp::create(w.b, w.loc);
}

void mlir::step::emitBlockLoop(const Words &w, Value count,
                               function_ref<void(Value)> emitBody) {
  w.loop(emitThread(w), w.toIndex(count), kBlockThreads,
         [&](Value i) { emitBody(w.toWord(i)); });
}

void mlir::step::emitByOneThread(const Words &w,
                                 function_ref<void()> emitBody) {
  emitBlockLoop(w, w.constantWord(1), [&](Value) { emitBody(); });
}

static Value loadPartial(const Words &w, Value address) {
  return w.load(w.view(address, w.b.getF64Type()), int64_t(0));
}

static void storePartial(const Words &w, Value value, Value address) {
  w.store(value, w.view(address, w.b.getF64Type()), w.constant(0));
}

/// Up to `kRadix` entries, `stride` f64 apart from `first` on, of which `left`
/// are there: combined into the first. In place of one that is missing stands
/// the neutral value, which changes nothing: no partial result is -0.0, as all
/// are sums from +0.0 on.
static void combineEntries(const Words &w, Combiner combiner, Value first,
                           Value left, Value stride) {
  SmallVector<Value> entries;
  for (int64_t k = 0; k < kRadix; ++k) {
    Value number = w.constantWord(k);
    Value isThere = w.isLess(number, left);
    Value index = w.select(isThere, w.mul(number, stride), w.constantWord(0));
    Value entry = loadPartial(w, w.addressOf(first, index));
    entries.push_back(w.select(isThere, entry, emitNeutral(w, combiner, 0)));
  }
  for (int64_t span = 1; span < kRadix; span *= 2)
    for (int64_t k = 0; k < kRadix; k += 2 * span)
      entries[k] = emitCombined(w, combiner, entries[k], entries[k + span]);
  storePartial(w, entries[0], first);
}

void mlir::step::emitBlockPairwise(const Words &w, Combiner combiner,
                                   const Entries &in, Value width) {
  // Entries `span` apart are combined.
  auto emitLevel = [&](Value span) -> Value {
    Value next = w.mul(span, w.constantWord(kRadix));
    Value one = w.constantWord(1);
    Value entries = w.div(w.sub(w.add(in.count, span), one), span);
    Value units = w.div(w.sub(w.add(in.count, next), one), next);
    Value stride = w.mul(span, in.stride);
    Value groups = in.groups.getCount(w);
    emitBlockLoop(w, w.mul(groups, w.mul(units, width)), [&](Value i) {
      Value column = w.rem(i, width), rest = w.div(i, width);
      Value unit = w.rem(rest, units), group = w.div(rest, units);
      Value entry = w.mul(unit, w.constantWord(kRadix));
      Value number = w.add(in.groups.getOffset(w, group), w.mul(entry, stride));
      Value first = w.addressOf(in.address, w.add(number, column));
      combineEntries(w, combiner, first, w.sub(entries, entry), stride);
    });
    emitBarrier(w);
    return next;
  };
  w.repeat(
      w.constantWord(1), [&](Value span) { return w.isLess(span, in.count); },
      emitLevel);
}

void mlir::step::emitBlockSequence(const Words &w, Combiner combiner,
                                   const Entries &in) {
  Value size = w.constantWord(STEPC_ROW_LEAF);
  Value leaves = w.ceilDiv(in.count, STEPC_ROW_LEAF);
  Value leafStride = w.mul(in.stride, size);
  // A leaf goes where its own first entry was.
  emitBlockLoop(w, w.mul(in.groups.getCount(w), leaves), [&](Value i) {
    Value leaf = w.rem(i, leaves), group = w.div(i, leaves);
    Value number =
        w.add(in.groups.getOffset(w, group), w.mul(leaf, leafStride));
    Value first = w.addressOf(in.address, number);
    Value count = w.min(w.sub(in.count, w.mul(leaf, size)), size);
    Value all = w.fold(w.constant(0), w.toIndex(count), 1,
                       emitNeutral(w, combiner, 0), [&](Value k, Value sum) {
                         Value index = w.mul(w.toWord(k), in.stride);
                         Value entry =
                             loadPartial(w, w.addressOf(first, index));
                         return emitCombined(w, combiner, sum, entry);
                       });
    storePartial(w, all, first);
  });
  emitBarrier(w);
  Entries combined = in;
  combined.count = leaves;
  combined.stride = leafStride;
  emitBlockPairwise(w, combiner, combined, w.constantWord(1));
}
