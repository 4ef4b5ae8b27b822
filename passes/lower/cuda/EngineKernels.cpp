//===- EngineKernels.cpp - kernels of the engine itself -------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/lower/cuda/EngineKernels.h"

#include "passes/lower/Combiners.h"
#include "passes/lower/cuda/BlockTree.h"
#include "passes/lower/cuda/GridKernel.h"

#include "stepc/kernel_abi.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"

using namespace mlir;
using namespace mlir::step;

/// One thread stores all: arguments have no place that a thread could compute.
static void emitStoreKernel(const Words &w) {
  emitKernel(w, STEPC_STORE_KERNEL, 1 + STEPC_STORE_WORDS, [&](ValueRange in) {
    emitOnce(w, [&] {
      Value to = w.words(in[0]);
      for (int64_t k = 0; k < STEPC_STORE_WORDS; ++k)
        w.store(in[1 + k], to, w.constant(k));
    });
  });
}

static void emitSetKernel(const Words &w) {
  emitKernel(w, STEPC_SET_KERNEL, 2, [&](ValueRange in) {
    emitOnce(w, [&] { w.store(in[1], w.words(in[0]), w.constant(0)); });
  });
}

static void emitAdvanceKernel(const Words &w) {
  emitKernel(w, STEPC_ADVANCE_KERNEL, 4, [&](ValueRange in) {
    Value list = w.words(in[0]);
    emitThreadLoop(w, in.drop_front(), [&](Value entry) {
      Value first = w.mul(entry, w.constant(STEPC_SCALAR_ENTRY_WORDS));
      Value count = w.add(first, w.constant(STEPC_SCALAR_ENTRY_COUNT));
      Value fresh = w.add(first, w.constant(STEPC_SCALAR_ENTRY_FRESH));
      Value more = w.add(w.load(list, count), w.constantWord(1));
      w.store(more, list, count);
      w.store(w.constantWord(0), list, fresh);
    });
  });
}

/// Entries are two addresses: what `emitValue` makes of the first is stored at
/// the second.
static void emitCopyKernel(const Words &w, StringRef name,
                           function_ref<Value(Value)> emitValue) {
  emitKernel(w, name, 4, [&](ValueRange in) {
    Value list = w.words(in[0]);
    emitThreadLoop(w, in.drop_front(), [&](Value entry) {
      Value first = w.mul(entry, w.constant(STEPC_COPY_ENTRY_WORDS));
      Value from = w.load(list, first);
      Value to = w.load(list, w.add(first, w.constant(1)));
      Value value = emitValue(from);
      w.store(value, w.view(to, value.getType()), w.constant(0));
    });
  });
}

static void emitCopyKernels(const Words &w) {
  Type f64 = w.b.getF64Type();
  emitCopyKernel(w, STEPC_COPY_KERNEL,
                 [&](Value from) { return w.load(w.words(from), int64_t(0)); });
  emitCopyKernel(w, STEPC_ORDER_KERNEL, [&](Value from) {
    return emitSent(w, Combiner::Amax, w.load(w.view(from, f64), int64_t(0)));
  });
  emitCopyKernel(w, STEPC_UNORDER_KERNEL, [&](Value from) {
    return emitReceived(w, Combiner::Amax, from, w.constant(0));
  });
}

static void emitFillKernel(const Words &w) {
  emitBlockListKernel(
      w, STEPC_FILL_KERNEL, STEPC_FILL_ENTRY_WORDS, [&](ArrayRef<Value> entry) {
        Value to = w.words(entry[0]);
        emitBlockLoop(w, entry[1],
                      [&](Value i) { w.store(entry[2], to, w.toIndex(i)); });
      });
}

static void emitBeginKernel(const Words &w) {
  emitKernel(w, STEPC_BEGIN_KERNEL, 3, [&](ValueRange in) {
    emitOnce(w, [&] {
      Value state = w.words(in[0]);
      auto load = [&](int64_t word) { return w.load(state, word); };
      auto store = [&](Value value, int64_t word) {
        w.store(value, state, w.constant(word));
      };
      Value one = w.constantWord(1), zero = w.constantWord(0);
      Value isCurrent = w.isEqual(in[1], load(STEPC_STATE_VERSION));
      Value isStale =
          w.select(w.isZero(in[2]), zero, w.select(isCurrent, zero, one));
      store(isStale, STEPC_STATE_SKIPPED);
      store(isStale, STEPC_STATE_STALE_NOW);
      store(w.constantWord(-1), STEPC_STATE_SKIPPED_ROUND);
      store(w.add(load(STEPC_STATE_STALE), isStale), STEPC_STATE_STALE);
    });
  });
}

static_assert(STEPC_STATE_SKIPPED == 0, "`state` is the `skip` of a range");

static void emitDecideKernel(const Words &w) {
  emitKernel(w, STEPC_DECIDE_KERNEL, 6, [&](ValueRange in) {
    emitOnce(w, [&] {
      Value list = w.words(in[0]), state = w.words(in[3]);
      Value zero = w.constantWord(0);
      // A step that is skipped already has no list: it may be a stale graph's.
      auto [begin, end] = emitRange(w, {in[1], in[2], in[3]});
      Value any = w.fold(begin, end, 1, zero, [&](Value number, Value before) {
        Value own = w.load(list, number);
        return w.either(before, w.load(w.words(own), int64_t(0)));
      });
      auto store = [&](Value value, int64_t word) {
        w.store(value, state, w.constant(word));
      };
      auto add = [&](Value value, int64_t word) {
        store(w.add(w.load(state, word), value), word);
      };
      w.branch(
          w.isZero(any), [] {},
          [&] {
            store(w.constantWord(1), STEPC_STATE_SKIPPED);
            store(in[4], STEPC_STATE_SKIPPED_ROUND);
            add(w.constantWord(1), STEPC_STATE_SKIPPED_STEPS);
            add(in[5], STEPC_STATE_LOST);
          });
    });
  });
}

void mlir::step::emitEngineKernels(const Words &w) {
  emitStoreKernel(w);
  emitSetKernel(w);
  emitAdvanceKernel(w);
  emitCopyKernels(w);
  emitFillKernel(w);
  emitCarriedKernels(w);
  emitBeginKernel(w);
  emitDecideKernel(w);
}
