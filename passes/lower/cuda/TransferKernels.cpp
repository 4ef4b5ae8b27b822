//===- TransferKernels.cpp - kernels of what crosses ranks ----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What core/Addends.cpp of the runtime does on the processor, to the bit: an
// addend is divided in the type of sums and rounded once, and rows are added up
// in their order.
//
//===----------------------------------------------------------------------===//
#include "passes/lower/cuda/EngineKernels.h"

#include "passes/lower/BodyEmitter.h"
#include "passes/lower/cuda/ElementKernel.h"
#include "passes/lower/cuda/GridKernel.h"

#include "stepc/kernel_abi.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::step;

using TypePair = std::pair<Type, Type>;

/// Of a storage type among those of the words that name a conversion.
static int64_t getCode(Type type) {
  return type.isF32()    ? STEPC_TYPE_F32
         : type.isF64()  ? STEPC_TYPE_F64
         : type.isBF16() ? STEPC_TYPE_BF16
                         : STEPC_TYPE_F16;
}

namespace {
class TransferEmitter {
public:
  TransferEmitter(const Words &w, ModuleOp module);

  bool any() const { return !conversions.empty() || !copied.empty(); }
  void emitConvertKernel() const;
  void emitSumKernel() const;

private:
  /// The words of an entry of the list.
  struct Entry {
    Value source, target, count, kind, divisor, tile;
  };

  Type getSum(Type type) const {
    return type.isF64() ? type : w.b.getF32Type();
  }
  static Type withLanes(Type type, int64_t lanes) {
    return lanes ? Type(VectorType::get({lanes}, type)) : type;
  }
  Value constant(Type type, double value) const;
  Value compare(arith::CmpFPredicate predicate, Value x, Value y) const {
    return arith::CmpFOp::create(w.b, w.loc, predicate, x, y);
  }
  Value extend(Value value, Type to) const;
  Value round(Value value, Type to) const;
  Value roundToOdd(Value value) const;
  Value divide(Value value, Value divisor) const;
  void ifEqual(Value word, int64_t constant,
               function_ref<void()> emitThen) const;

  Entry loadEntry(Value list, Value number) const;
  void emitTile(const Entry &entry, Value tile) const;
  void forEachOfTile(int64_t lanes, Value addresses, Value count,
                     function_ref<void(int64_t, Value)> emitBody) const;
  void emitSum(TypePair types, ValueRange in, Value count) const;

  Words w;
  /// The types of gradients and of their sums, with those in which they cross;
  /// of rows and their sums; of what is copied or cleared.
  llvm::SetVector<TypePair> conversions, sums;
  llvm::SetVector<Type> copied;
};
} // namespace

TransferEmitter::TransferEmitter(const Words &w, ModuleOp module) : w(w) {
  auto addCopied = [&](Type type) {
    copied.insert(IntegerType::get(type.getContext(), 8 * getBytes(type)));
  };
  module.walk([&](TransferOpInterface op) {
    Type entry = op.getEntryType(), wire = op.getWireType();
    if (!entry)
      addCopied(cast<BufferType>(getMemory(op->getOperand(0)).getType())
                    .getElement());
    if (!entry || !wire)
      return;
    addCopied(wire);
    Type sum = getSum(entry);
    conversions.insert({entry, wire});
    if (sum != wire)
      conversions.insert({sum, wire});
    sums.insert({wire, sum});
  });
}

Value TransferEmitter::constant(Type type, double value) const {
  Type element = getElementTypeOrSelf(type);
  TypedAttr attribute = w.b.getFloatAttr(element, value);
  if (auto vector = dyn_cast<VectorType>(type))
    attribute = DenseElementsAttr::get(vector, attribute);
  return arith::ConstantOp::create(w.b, w.loc, attribute);
}

/// Between 16 bits and f64 there is no conversion: every one is an f32.
Value TransferEmitter::extend(Value value, Type to) const {
  if (to.isF64() && getBytes(getElementTypeOrSelf(value.getType())) == 2)
    value = extend(value, w.b.getF32Type());
  auto vector = dyn_cast<VectorType>(value.getType());
  Type type = vector ? Type(vector.clone(to)) : to;
  if (value.getType() == type)
    return value;
  return arith::ExtFOp::create(w.b, w.loc, type, value);
}

/// An f32 that rounds to any narrower type as the f64 does: the nearest with an
/// odd last bit, where the f64 is none.
Value TransferEmitter::roundToOdd(Value value) const {
  auto vector = dyn_cast<VectorType>(value.getType());
  auto like = [&](Type type) {
    return vector ? Type(vector.clone(type)) : type;
  };
  auto integer = [&](int64_t number) -> Value {
    TypedAttr attribute = w.b.getI32IntegerAttr(int32_t(number));
    if (vector)
      attribute = DenseElementsAttr::get(
          cast<VectorType>(like(w.b.getI32Type())), attribute);
    return arith::ConstantOp::create(w.b, w.loc, attribute);
  };
  Type f32 = like(w.b.getF32Type());
  Value near = arith::TruncFOp::create(w.b, w.loc, f32, value);
  Value back = extend(near, w.b.getF64Type());
  Value zero = constant(value.getType(), 0.0);
  Value beyond = w.select(compare(arith::CmpFPredicate::OLT, back, zero),
                          compare(arith::CmpFPredicate::OLT, back, value),
                          compare(arith::CmpFPredicate::OGT, back, value));
  Value bits =
      arith::BitcastOp::create(w.b, w.loc, like(w.b.getI32Type()), near);
  Value toward = w.sub(bits, w.select(beyond, integer(1), integer(0)));
  Value odd =
      arith::BitcastOp::create(w.b, w.loc, f32, w.either(toward, integer(1)));
  // Unordered too: of NaN there is no other.
  Value exact = compare(arith::CmpFPredicate::UEQ, back, value);
  return w.select(exact, near, odd);
}

Value TransferEmitter::round(Value value, Type to) const {
  Type from = getElementTypeOrSelf(value.getType());
  if (from == to)
    return value;
  if (from.isF64() && getBytes(to) == 2)
    value = roundToOdd(value);
  auto vector = dyn_cast<VectorType>(value.getType());
  return arith::TruncFOp::create(w.b, w.loc,
                                 vector ? Type(vector.clone(to)) : to, value);
}

/// By what is not 1: `divisor` is an f64.
Value TransferEmitter::divide(Value value, Value divisor) const {
  Value isOne = compare(arith::CmpFPredicate::OEQ, divisor,
                        constant(divisor.getType(), 1.0));
  auto emitDivided = [&]() -> Value {
    Value by = w.narrow(divisor, getElementTypeOrSelf(value.getType()));
    if (isa<VectorType>(value.getType()))
      by = vector::BroadcastOp::create(w.b, w.loc, value.getType(), by);
    return arith::DivFOp::create(w.b, w.loc, value, by);
  };
  return w.choose(value.getType(), isOne, [&] { return value; }, emitDivided);
}

void TransferEmitter::ifEqual(Value word, int64_t constant,
                              function_ref<void()> emitThen) const {
  w.when(w.isEqual(word, w.constantWord(constant)), emitThen);
}

TransferEmitter::Entry TransferEmitter::loadEntry(Value list,
                                                  Value number) const {
  Value first = w.mul(number, w.constant(STEPC_CONVERT_ENTRY_WORDS));
  auto load = [&](int64_t word) {
    return w.load(list, w.add(first, w.constant(word)));
  };
  Value divisor = w.toNumber(load(STEPC_CONVERT_ENTRY_DIVISOR));
  return {load(STEPC_CONVERT_ENTRY_SOURCE),
          load(STEPC_CONVERT_ENTRY_TARGET),
          load(STEPC_CONVERT_ENTRY_COUNT),
          load(STEPC_CONVERT_ENTRY_KIND),
          divisor,
          load(STEPC_CONVERT_ENTRY_TILE)};
}

/// The numbers of elements of a tile, by vectors where all bits of addresses
/// permit, and what is left one by one, of which each thread takes some.
void TransferEmitter::forEachOfTile(
    int64_t lanes, Value addresses, Value count,
    function_ref<void(int64_t, Value)> emitBody) const {
  Value thread = emitThread(w);
  Value vectors =
      w.select(isAligned(w, addresses), w.floorTo(count, lanes), w.constant(0));
  w.loop(w.mul(thread, w.constant(lanes)), vectors, lanes * kBlockThreads,
         [&](Value i) { emitBody(lanes, i); });
  w.loop(w.add(vectors, thread), count, kBlockThreads,
         [&](Value i) { emitBody(0, i); });
}

void TransferEmitter::emitTile(const Entry &entry, Value tile) const {
  constexpr int64_t size = STEPC_CONVERT_TILE_ELEMENTS;
  Value first = w.mul(w.sub(tile, entry.tile), w.constantWord(size));
  Value count =
      w.toIndex(w.min(w.sub(entry.count, first), w.constantWord(size)));
  Value bits = w.either(entry.source, entry.target);
  auto move = [&](Value address, Type type) {
    return w.add(address, w.mul(first, w.constantWord(getBytes(type))));
  };
  AccessHints hints = {false, llvm::Align(kAccessBytes)};
  Value isAbsent = w.isZero(entry.source);
  for (Type type : copied)
    ifEqual(entry.kind, getBytes(type), [&] {
      Value source = move(entry.source, type),
            target = move(entry.target, type);
      forEachOfTile(
          kAccessBytes / getBytes(type), bits, count,
          [&](int64_t lanes, Value i) {
            auto store = [&](Value value) {
              emitStore(w, type, lanes, value, target, i, hints);
            };
            w.branch(
                isAbsent,
                [&] {
                  Type own = withLanes(type, lanes);
                  store(arith::ConstantOp::create(w.b, w.loc,
                                                  w.b.getZeroAttr(own)));
                },
                [&] { store(emitLoad(w, type, lanes, source, i, hints)); });
          });
    });
  for (auto [from, to] : conversions) {
    int64_t kind = STEPC_CONVERT_KIND(getCode(from), getCode(to));
    ifEqual(entry.kind, kind, [&, from = from, to = to] {
      Value source = move(entry.source, from), target = move(entry.target, to);
      forEachOfTile(
          kAccessBytes / std::min(getBytes(from), getBytes(to)), bits, count,
          [&](int64_t lanes, Value i) {
            Value value = emitLoad(w, from, lanes, source, i, hints);
            value = divide(extend(value, getSum(from)), entry.divisor);
            emitStore(w, to, lanes, round(value, to), target, i, hints);
          });
    });
  }
}

/// A block takes tiles of elements, each of one entry.
void TransferEmitter::emitConvertKernel() const {
  emitKernel(w, STEPC_CONVERT_KERNEL, 4, [&](ValueRange in) {
    Value list = w.words(in[0]);
    auto [begin, end] = emitRange(w, {w.constantWord(0), in[2], in[3]});
    emitGridLoop(w, begin, end, [&](Value index) {
      Value tile = w.toWord(index);
      Value number =
          emitFindEntry(w, list, in[1], tile, STEPC_CONVERT_ENTRY_WORDS,
                        STEPC_CONVERT_ENTRY_TILE);
      emitTile(loadEntry(list, w.toIndex(number)), tile);
    });
  });
}

void TransferEmitter::emitSum(TypePair types, ValueRange in,
                              Value count) const {
  auto [wire, sum] = types;
  int64_t most = kAccessBytes / std::min(getBytes(wire), getBytes(sum));
  Value rowBytes = w.mul(in[1], w.constantWord(getBytes(wire)));
  Value bits = w.either(w.either(in[0], in[3]), rowBytes);
  Value divisor = w.toNumber(in[6]);
  Value replaces = w.isZero(in[7]);
  AccessHints hints = {false, llvm::Align(kAccessBytes)};
  auto emitBody = [&, wire = wire, sum = sum](int64_t lanes, Value i) {
    auto load = [&](Value row) {
      Value address = w.add(in[0], w.mul(w.toWord(row), rowBytes));
      return extend(emitLoad(w, wire, lanes, address, i, hints), sum);
    };
    Value first = load(w.constant(0));
    auto add = [&](Value x, Value y) -> Value {
      return arith::AddFOp::create(w.b, w.loc, x, y);
    };
    Value all =
        w.fold(w.constant(1), w.toIndex(in[2]), 1, first,
               [&](Value row, Value before) { return add(before, load(row)); });
    Value total = divide(all, divisor);
    Value stored = w.choose(
        total.getType(), replaces, [&] { return total; },
        [&] { return add(emitLoad(w, sum, lanes, in[3], i, hints), total); });
    emitStore(w, sum, lanes, stored, in[3], i, hints);
  };
  auto [thread, threads] = emitGridThread(w);
  Value vectors =
      w.select(isAligned(w, bits), w.floorTo(count, most), w.constant(0));
  w.loop(w.mul(thread, w.constant(most)), vectors,
         w.mul(threads, w.constant(most)), [&](Value i) { emitBody(most, i); });
  w.loop(w.add(vectors, thread), count, threads,
         [&](Value i) { emitBody(0, i); });
}

void TransferEmitter::emitSumKernel() const {
  emitKernel(w, STEPC_SUM_KERNEL, 9, [&](ValueRange in) {
    Value count = emitRange(w, {w.constantWord(0), in[4], in[8]}).second;
    for (TypePair types : sums) {
      int64_t kind =
          STEPC_CONVERT_KIND(getCode(types.first), getCode(types.second));
      ifEqual(in[5], kind, [&] { emitSum(types, in, count); });
    }
  });
}

void mlir::step::emitTransferKernels(const Words &w, ModuleOp module) {
  TransferEmitter emitter(w, module);
  if (!emitter.any())
    return;
  emitter.emitConvertKernel();
  emitter.emitSumKernel();
}
