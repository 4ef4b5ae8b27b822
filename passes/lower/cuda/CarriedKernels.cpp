//===- CarriedKernels.cpp - scalars kept from step to step ----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What cpu/Carried.cpp does on the processor, on a device, where the host
// does not know the slots.
//
//===----------------------------------------------------------------------===//
#include "passes/lower/cuda/EngineKernels.h"

#include "passes/lower/cuda/GridKernel.h"

#include "stepc/kernel_abi.h"

using namespace mlir;
using namespace mlir::step;

namespace {
/// Emits what one thread does with the list and the state.
class CarriedEmitter {
public:
  CarriedEmitter(const Words &w, ValueRange arguments)
      : w(w), list(w.words(arguments[0])), entries(arguments[1]),
        state(w.words(arguments[2])),
        runs(w.isZero(w.load(w.words(arguments[3]), int64_t(0)))) {}

  void emitCheck();
  void emitCompare();

private:
  Value loadState(int64_t word) const { return w.load(state, word); }
  void storeState(Value value, int64_t word) const {
    w.store(value, state, w.constant(word));
  }
  /// A word of an entry, whose number is a word.
  Value loadEntry(Value entry, int64_t word) const {
    Value first = w.mul(entry, w.constantWord(STEPC_CARRIED_ENTRY_WORDS));
    return w.load(list, w.toIndex(w.add(first, w.constantWord(word))));
  }
  Value loadBits(Value address) const {
    return w.load(w.words(address), int64_t(0));
  }
  void storeWord(Value value, Value address) const {
    w.store(value, w.words(address), w.constant(0));
  }
  Value isKnown(Value entry) const;
  Value getTurn(Value number) const;
  Value countUnknown() const;
  void forgetAll() const;
  void compare(Value entry) const;

  const Words &w;
  Value list, entries, state, runs;
};
} // namespace

/// Whether the step takes the tensor, and its scalar is known; NaN is.
Value CarriedEmitter::isKnown(Value entry) const {
  Value slot = w.toNumber(loadBits(loadEntry(entry, 0)));
  Value listed = w.isUnequal(loadEntry(entry, 2), w.constantWord(0));
  return w.both(listed, w.isTrue(slot));
}

/// The entry `number` after the one whose turn it was.
Value CarriedEmitter::getTurn(Value number) const {
  Value next = w.add(loadState(STEPC_STATE_CARRIED_TURN), w.constantWord(1));
  return w.rem(w.add(next, number), entries);
}

/// How many entries come before the first one that is known, from the turn on.
Value CarriedEmitter::countUnknown() const {
  Type i1 = w.b.getI1Type();
  auto isUnknown = [&](Value number) -> Value {
    Value yes = arith::ConstantIntOp::create(w.b, w.loc, i1, 1);
    return w.differ(isKnown(getTurn(number)), yes);
  };
  return w.repeat(
      w.constantWord(0),
      [&](Value number) {
        return w.choose(
            i1, w.isLess(number, entries), [&] { return isUnknown(number); },
            [&]() -> Value {
              return arith::ConstantIntOp::create(w.b, w.loc, i1, 0);
            });
      },
      [&](Value number) { return w.add(number, w.constantWord(1)); });
}

void CarriedEmitter::emitCheck() {
  storeState(w.constantWord(0), STEPC_STATE_CARRIED_CHECKED);
  w.when(runs, [&] {
    Value number = countUnknown();
    w.when(w.isLess(number, entries), [&] {
      Value entry = getTurn(number), slot = loadEntry(entry, 0);
      storeState(loadBits(slot), STEPC_STATE_CARRIED_KNOWN);
      storeState(entry, STEPC_STATE_CARRIED_TURN);
      storeState(w.add(entry, w.constantWord(1)), STEPC_STATE_CARRIED_CHECKED);
      storeWord(w.constantWord(0), slot);
    });
  });
}

void CarriedEmitter::forgetAll() const {
  w.loop(w.constant(0), w.toIndex(entries), 1, [&](Value entry) {
    storeWord(w.constantWord(0), loadEntry(w.toWord(entry), 0));
  });
}

/// What was computed in the step, with what the step before had left.
void CarriedEmitter::compare(Value entry) const {
  Value knownBits = loadState(STEPC_STATE_CARRIED_KNOWN);
  Value nowBits = loadBits(loadEntry(entry, 1));
  Value known = w.toNumber(knownBits), now = w.toNumber(nowBits);
  Value someNumber =
      arith::CmpFOp::create(w.b, w.loc, arith::CmpFPredicate::OEQ, now, now);
  Value otherNumber = arith::CmpFOp::create(
      w.b, w.loc, arith::CmpFPredicate::OEQ, known, known);
  Value isNumber = w.either(someNumber, otherNumber);
  Value hasChanged =
      arith::CmpFOp::create(w.b, w.loc, arith::CmpFPredicate::UNE, now, known);
  w.when(w.both(hasChanged, isNumber), [&] {
    Value more = w.add(loadState(STEPC_STATE_CARRIED_STALE), w.constantWord(1));
    storeState(more, STEPC_STATE_CARRIED_STALE);
    storeState(loadEntry(entry, 3), STEPC_STATE_CARRIED_TENSOR);
    storeState(knownBits, STEPC_STATE_CARRIED_WAS);
    storeState(nowBits, STEPC_STATE_CARRIED_IS);
    forgetAll();
  });
}

/// What a skipped step has computed need not be there.
void CarriedEmitter::emitCompare() {
  Value checked = loadState(STEPC_STATE_CARRIED_CHECKED);
  w.branch(
      w.isZero(checked), [] {},
      [&] {
        Value entry = w.sub(checked, w.constantWord(1));
        w.branch(
            runs, [&] { compare(entry); },
            [&] {
              storeWord(loadState(STEPC_STATE_CARRIED_KNOWN),
                        loadEntry(entry, 0));
            });
        storeState(w.constantWord(0), STEPC_STATE_CARRIED_CHECKED);
      });
}

void mlir::step::emitCarriedKernels(const Words &w) {
  emitKernel(w, STEPC_CHECK_KERNEL, 4, [&](ValueRange in) {
    emitOnce(w, [&] { CarriedEmitter(w, in).emitCheck(); });
  });
  emitKernel(w, STEPC_COMPARE_KERNEL, 4, [&](ValueRange in) {
    emitOnce(w, [&] { CarriedEmitter(w, in).emitCompare(); });
  });
  emitKernel(w, STEPC_FORGET_KERNEL, 4, [&](ValueRange in) {
    Value list = w.words(in[0]);
    emitThreadLoop(w, in.drop_front(), [&](Value entry) {
      Value first = w.mul(entry, w.constant(STEPC_CARRIED_ENTRY_WORDS));
      Value slot = w.load(list, first);
      w.store(w.constantWord(0), w.words(slot), w.constant(0));
    });
  });
}
