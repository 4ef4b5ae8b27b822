//===- Packing.cpp - operands as products read them -----------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/lower/cpu/Packing.h"

#include "passes/lower/BodyEmitter.h"

#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::step;

/// How many steps of a line are packed before the next line's: those of a whole
/// group stay in the first cache meanwhile.
static constexpr int64_t kPackedDepth = 64;

namespace {
/// Steps from `begin` to `end`, indices, of a line whose first number lies at
/// `first`; the group's own begin at `to`.
struct Stretch {
  Value begin, end, first, to;
};

class Packer {
public:
  Packer(const Words &w, const Packing &packing, int64_t width)
      : w(w), packing(packing), step(packing.getStep(w.b)), width(width) {}

  void emit() const;

private:
  Type withLanes(Type element, int64_t lanes) const {
    return lanes ? Type(VectorType::get({lanes}, element)) : element;
  }
  Value getZero(Type type) const {
    return arith::ConstantOp::create(w.b, w.loc, w.b.getZeroAttr(type));
  }
  Value loadNumber(Value first, Value k, int64_t lanes) const;
  Value getBits(Value number) const;
  Value loadStep(Value first, Value index, int64_t lanes) const;
  Value packAlong(const Stretch &stretch) const;
  void packLine(const Stretch &stretch, Value isThere) const;
  void packLines(Value line, Value to) const;
  void packVectors(Value first, Value to) const;

  const Words &w;
  const Packing &packing;
  Type step;
  int64_t width;
};
} // namespace

/// Number k, a word, of the line at `first`, or of the `lanes` lines from there
/// on, in the compute type.
Value Packer::loadNumber(Value first, Value k, int64_t lanes) const {
  Value index = w.add(first, w.mul(k, packing.from.columnStride));
  return loadElement(w, packing.from, packing.compute, w.toIndex(index), lanes);
}

/// Those of the bf16, in an i32.
Value Packer::getBits(Value number) const {
  auto vector = dyn_cast<VectorType>(number.getType());
  auto of = [&](Type element) {
    return vector ? Type(vector.clone(element)) : element;
  };
  Value rounded =
      arith::TruncFOp::create(w.b, w.loc, of(w.b.getBF16Type()), number);
  Value bits =
      arith::BitcastOp::create(w.b, w.loc, of(w.b.getI16Type()), rounded);
  return arith::ExtUIOp::create(w.b, w.loc, of(w.b.getI32Type()), bits);
}

/// Step number `index`. Of an odd last number's pair the second is 0.
Value Packer::loadStep(Value first, Value index, int64_t lanes) const {
  Value k = w.toWord(index);
  if (!packing.inPairs)
    return loadNumber(first, k, lanes);
  Value even = w.mul(k, w.constantWord(2));
  Value odd = w.add(even, w.constantWord(1));
  Type number = withLanes(packing.compute, lanes);
  Value low = getBits(loadNumber(first, even, lanes));
  Value high = getBits(w.choose(
      number, w.isLess(odd, packing.depth),
      [&] { return loadNumber(first, odd, lanes); },
      [&] { return getZero(number); }));
  Value half = arith::ConstantOp::create(w.b, w.loc, w.b.getI32IntegerAttr(16));
  if (lanes)
    half = vector::BroadcastOp::create(w.b, w.loc, low.getType(), half);
  Value shifted = arith::ShLIOp::create(w.b, w.loc, high, half);
  return arith::OrIOp::create(w.b, w.loc, low, shifted);
}

/// Whole pairs of a line whose numbers lie side by side: rounded by vectors,
/// and copied from where those are stored. Gives where the rest begins.
Value Packer::packAlong(const Stretch &stretch) const {
  constexpr int64_t kPairs = kPairScratchBytes / sizeof(int32_t);
  Value whole = w.toIndex(w.div(packing.depth, w.constantWord(2)));
  Value end = arith::MinSIOp::create(w.b, w.loc, stretch.end, whole);
  end = arith::MaxSIOp::create(w.b, w.loc, stretch.begin, end);
  Value count = w.floorTo(w.sub(end, stretch.begin), kPairs);
  Value rest = w.add(stretch.begin, count);
  w.loop(stretch.begin, rest, kPairs, [&](Value k) {
    Value first = w.mul(w.toWord(k), w.constantWord(2));
    Value numbers = loadNumber(stretch.first, first, 2 * kPairs);
    auto type = VectorType::get({2 * kPairs}, w.b.getBF16Type());
    Value rounded = arith::TruncFOp::create(w.b, w.loc, type, numbers);
    emitStore(w, w.b.getBF16Type(), 2 * kPairs, rounded, packing.scratch,
              w.constant(0));
    for (int64_t pair = 0; pair < kPairs; ++pair) {
      Value index = w.add(k, w.constant(pair));
      emitStore(w, step, 0,
                emitLoad(w, step, 0, packing.scratch, w.constant(pair)),
                stretch.to, w.mul(index, w.constant(width)));
    }
  });
  return rest;
}

/// A stretch of a line, or zeros where the line is not `isThere`.
void Packer::packLine(const Stretch &stretch, Value isThere) const {
  auto emitLoop = [&](Value begin, function_ref<Value(Value)> emitStep) {
    w.loop(begin, stretch.end, 1, [&](Value k) {
      emitStore(w, step, 0, emitStep(k), stretch.to,
                w.mul(k, w.constant(width)));
    });
  };
  Value zero = getZero(step);
  auto pack = [&] {
    Value begin = stretch.begin;
    if (packing.inPairs)
      begin = w.choose(
          begin.getType(),
          w.isEqual(packing.from.columnStride, w.constantWord(1)),
          [&] { return packAlong(stretch); }, [&] { return stretch.begin; });
    emitLoop(begin, [&](Value k) { return loadStep(stretch.first, k, 0); });
  };
  w.branch(isThere, pack,
           [&] { emitLoop(stretch.begin, [&](Value) { return zero; }); });
}

/// A whole group whose lines lie side by side: vectors are copied.
void Packer::packVectors(Value first, Value to) const {
  w.loop(w.constant(0), w.toIndex(packing.getSteps(w)), 1, [&](Value k) {
    emitStore(w, step, width, loadStep(first, k, width), to,
              w.mul(k, w.constant(width)));
  });
}

/// A group from `line` on, line by line, by stretches.
void Packer::packLines(Value line, Value to) const {
  Value bytes = w.constantWord(getBytes(step));
  Value steps = w.toIndex(packing.getSteps(w));
  w.loop(w.constant(0), steps, kPackedDepth, [&](Value begin) {
    Value end = arith::MinSIOp::create(w.b, w.loc, steps,
                                       w.add(begin, w.constant(kPackedDepth)));
    w.loop(w.constant(0), w.constant(width), 1, [&](Value index) {
      Value lane = w.toWord(index), own = w.add(line, lane);
      Stretch stretch{begin, end, w.mul(own, packing.from.rowStride),
                      w.add(to, w.mul(lane, bytes))};
      packLine(stretch, w.isLess(own, packing.count));
    });
  });
}

void Packer::emit() const {
  Value groups = w.ceilDiv(packing.count, width);
  Value size = w.constantWord(width);
  Value groupBytes =
      w.mul(w.mul(packing.getSteps(w), size), w.constantWord(getBytes(step)));
  w.loop(w.constant(0), w.toIndex(groups), 1, [&](Value index) {
    Value group = w.toWord(index);
    Value line = w.mul(group, size);
    Value to = w.add(packing.to, w.mul(group, groupBytes));
    Value isWhole =
        w.isLess(w.add(line, w.constantWord(width - 1)), packing.count);
    Value isDense = w.isEqual(packing.from.rowStride, w.constantWord(1));
    w.branch(
        w.both(isWhole, isDense),
        [&] { packVectors(w.mul(line, packing.from.rowStride), to); },
        [&] { packLines(line, to); });
  });
}

void mlir::step::emitPacking(const Words &w, const Packing &packing,
                             int64_t width) {
  Packer(w, packing, width).emit();
}
