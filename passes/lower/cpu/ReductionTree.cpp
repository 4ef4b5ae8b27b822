//===- ReductionTree.cpp - the fixed order of additions -------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/lower/cpu/ReductionTree.h"

#include "stepc/kernel_abi.h"

#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::step;

Value mlir::step::emitFolded(const Words &w, Combiner combiner, Value lanes) {
  Value value = lanes;
  for (int64_t half = STEPC_LANES / 2; half >= 1; half /= 2) {
    auto part = [&](int64_t offset) {
      auto lanesOfPart = llvm::to_vector(llvm::seq(offset, offset + half));
      return vector::ShuffleOp::create(w.b, w.loc, value, value, lanesOfPart);
    };
    Value low = part(0), high = part(half);
    value = emitCombined(w, combiner, low, high);
  }
  return vector::ExtractOp::create(w.b, w.loc, value, ArrayRef<int64_t>{0});
}

/// The address of the entry number `index`.
static Value entryAddress(const Words &w, Value address, Value index,
                          Value stride) {
  return w.add(address,
               w.mul(w.mul(w.toWord(index), stride), w.constantWord(8)));
}

/// to[i] = to[i] combined with from[i] for i below `width`.
static void emitCombineRows(const Words &w, Combiner combiner, Value to,
                            Value from, Value width) {
  Type f64 = w.b.getF64Type();
  auto vector = VectorType::get({STEPC_LANES}, f64);
  Value toView = w.view(to, f64), fromView = w.view(from, f64);
  auto load = [&](Value view, Value index) -> Value {
    return vector::LoadOp::create(w.b, w.loc, vector, view, ValueRange{index});
  };
  Value vectors = w.floorTo(width, STEPC_LANES);
  w.loop(w.constant(0), vectors, STEPC_LANES, [&](Value i) {
    Value sum = emitCombined(w, combiner, load(toView, i), load(fromView, i));
    vector::StoreOp::create(w.b, w.loc, sum, toView, ValueRange{i});
  });
  w.loop(vectors, width, 1, [&](Value i) {
    Value own = w.load(toView, i), other = w.load(fromView, i);
    w.store(emitCombined(w, combiner, own, other), toView, i);
  });
}

namespace {
/// Combines rows of `width` f64 in place, pairwise by number: what lies below a
/// node of the tree is combined before the next of its level, so that it is in
/// the cache still. Rows lie `stride` words apart.
class PairwiseEmitter {
public:
  PairwiseEmitter(const Words &w, Combiner combiner, Value address, Value count,
                  Value stride, Value width)
      : w(w), combiner(combiner), address(address), count(count),
        stride(stride), width(width) {}

  void emit() const;

private:
  /// Rows `i` and `i + span` become row `i`.
  void emitNode(Value i, Value span) const {
    emitCombineRows(w, combiner, entryAddress(w, address, i, stride),
                    entryAddress(w, address, w.add(i, span), stride), width);
  }
  /// How many of `rows` rows are over when nodes of two `span`s are filled.
  Value getOver(Value rows, Value span) const {
    Value last = w.sub(w.add(span, span), w.constant(1));
    return w.both(rows, last);
  }
  void emitSpans(function_ref<Value(Value)> emitCondition,
                 function_ref<void(Value)> emitSpan) const;

  const Words &w;
  Combiner combiner;
  Value address, count, stride, width;
};
} // namespace

/// `for (span = 1; condition(span); span *= 2)`.
void PairwiseEmitter::emitSpans(function_ref<Value(Value)> emitCondition,
                                function_ref<void(Value)> emitSpan) const {
  w.repeat(w.constant(1), emitCondition, [&](Value span) {
    emitSpan(span);
    return w.add(span, span);
  });
}

void PairwiseEmitter::emit() const {
  // With row `end - 1` come all nodes whose last row it is.
  w.loop(w.constant(2), w.add(count, w.constant(1)), 2, [&](Value end) {
    emitSpans(
        [&](Value span) {
          return w.isEqual(getOver(end, span), w.constant(0));
        },
        [&](Value span) { emitNode(w.sub(end, w.add(span, span)), span); });
  });
  // Of each level the last node may lack rows.
  emitSpans([&](Value span) { return w.isLess(span, count); },
            [&](Value span) {
              Value over = getOver(count, span);
              w.when(w.isLess(span, over),
                     [&] { emitNode(w.sub(count, over), span); });
            });
}

/// One level of emitDense: the `count` f64 of the view become half as many, the
/// last being passed on where it has no partner. Returns their number.
static Value emitDenseLevel(const Words &w, Combiner combiner, Value view,
                            Value count) {
  constexpr int64_t kHalf = STEPC_LANES / 2;
  auto both = VectorType::get({STEPC_LANES}, w.b.getF64Type());
  Value one = w.constant(1), two = w.constant(2);
  Value pairs = arith::DivUIOp::create(w.b, w.loc, count, two);
  Value vectors = w.floorTo(pairs, kHalf);
  // Results go where operands have been read already.
  w.loop(w.constant(0), vectors, kHalf, [&](Value i) {
    Value entries = vector::LoadOp::create(w.b, w.loc, both, view,
                                           ValueRange{w.mul(i, two)});
    auto pick = [&](int64_t first) {
      SmallVector<int64_t> lanes;
      for (int64_t k = 0; k < kHalf; ++k)
        lanes.push_back(2 * k + first);
      return vector::ShuffleOp::create(w.b, w.loc, entries, entries, lanes);
    };
    Value even = pick(0), odd = pick(1);
    vector::StoreOp::create(w.b, w.loc, emitCombined(w, combiner, even, odd),
                            view, ValueRange{i});
  });
  w.loop(vectors, pairs, 1, [&](Value i) {
    Value even = w.load(view, w.mul(i, two));
    Value odd = w.load(view, w.add(w.mul(i, two), one));
    w.store(emitCombined(w, combiner, even, odd), view, i);
  });
  Value left = arith::RemUIOp::create(w.b, w.loc, count, two);
  w.loop(w.constant(0), left, 1,
         [&](Value) { w.store(w.load(view, w.sub(count, one)), view, pairs); });
  return w.add(pairs, left);
}

static void emitDenseBody(const Words &w, Combiner combiner, Value address,
                          Value count) {
  Value view = w.view(address, w.b.getF64Type());
  w.repeat(
      count, [&](Value left) { return w.isLess(w.constant(1), left); },
      [&](Value left) { return emitDenseLevel(w, combiner, view, left); });
}

/// "tree_pairwise_sum": the name of a function that all kernels share.
static std::string getName(StringRef what, Combiner combiner) {
  return ("tree_" + what + "_" + stringifyCombiner(combiner)).str();
}

void mlir::step::emitPairwise(const Words &w, Combiner combiner, Value address,
                              Value count, Value stride, Value width) {
  func::FuncOp function = getSharedFunction(
      w, getName("pairwise", combiner), 2, 2,
      [&](const Words &inner, ValueRange in) {
        PairwiseEmitter(inner, combiner, in[0], in[2], in[1], in[3]).emit();
      });
  func::CallOp::create(w.b, w.loc, function,
                       ValueRange{address, stride, count, width});
}

void mlir::step::emitDense(const Words &w, Combiner combiner, Value address,
                           Value count) {
  func::FuncOp function =
      getSharedFunction(w, getName("dense", combiner), 1, 1,
                        [&](const Words &inner, ValueRange in) {
                          emitDenseBody(inner, combiner, in[0], in[1]);
                        });
  func::CallOp::create(w.b, w.loc, function, ValueRange{address, count});
}

static void emitSequenceBody(const Words &w, Combiner combiner, Value address,
                             Value count, Value stride) {
  Type f64 = w.b.getF64Type();
  Value leafSize = w.constant(STEPC_ROW_LEAF), zero = w.constant(0);
  Value leaves = w.toIndex(w.ceilDiv(w.toWord(count), STEPC_ROW_LEAF));
  auto memory = [&](Value index) {
    return w.view(entryAddress(w, address, index, stride), f64);
  };
  // Leaf i goes where entry i was, which leaf i / 64 has used before.
  w.loop(zero, leaves, 1, [&](Value leaf) {
    Value begin = w.mul(leaf, leafSize);
    Value end = w.min(w.add(begin, leafSize), count);
    Value neutral = emitNeutral(w, combiner, 0);
    Value sum = w.fold(begin, end, 1, neutral, [&](Value k, Value before) {
      return emitCombined(w, combiner, before, w.load(memory(k), zero));
    });
    w.store(sum, memory(leaf), zero);
  });
  emitPairwise(w, combiner, address, leaves, stride, w.constant(1));
}

void mlir::step::emitSequence(const Words &w, Combiner combiner, Value address,
                              Value count, Value stride) {
  func::FuncOp function = getSharedFunction(
      w, getName("sequence", combiner), 2, 1,
      [&](const Words &inner, ValueRange in) {
        emitSequenceBody(inner, combiner, in[0], in[2], in[1]);
      });
  func::CallOp::create(w.b, w.loc, function,
                       ValueRange{address, stride, count});
}
