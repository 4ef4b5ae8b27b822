//===- CodeKernels.cpp - kernels of states that are kept as codes ---------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What numerics/Root4.cpp, Float8.cpp and FourBits.cpp do on the processor, to
// the bit: the same rounded operations in the same order. Half a warp has a
// block, each thread four elements side by side; the largest magnitude goes
// around by shuffles.
//
//===----------------------------------------------------------------------===//
#include "passes/lower/cuda/EngineKernels.h"

#include "passes/lower/BodyEmitter.h"
#include "passes/lower/cuda/BlockTree.h"
#include "passes/lower/cuda/ElementKernel.h"
#include "passes/lower/cuda/GridKernel.h"

#include "stepc/kernel_abi.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

#include <array>
#include <functional>

using namespace mlir;
using namespace mlir::step;

static constexpr int64_t kCodeBlock = STEPC_CODES_BLOCK;
static constexpr int64_t kWarpThreads = 32;
/// Elements of a thread, and threads of a block of codes.
static constexpr int64_t kLanes = 4, kThreads = kCodeBlock / kLanes;
/// Blocks of codes that the threads of a block have at a time.
static constexpr int64_t kAtOnce = kBlockThreads / kThreads;
static_assert(STEPC_CODES_TILE_BLOCKS % kAtOnce == 0 &&
              kWarpThreads % kThreads == 0);

static constexpr int32_t kMagnitude = 0x7fffffff, kInfinity = 0x7f800000;
static constexpr int32_t kSign = int32_t(0x80000000);
/// 2^-96, below which the largest code would not decode to the scale.
static constexpr int32_t kLeastScale = (127 - 96) << 23;
static constexpr int32_t kUnsignedLevels = 255, kSignedLevels = 127;
/// What is added to it is rounded to an integer, which the lowest bits are.
static constexpr float kRounder = 0x1.8p+23F;
/// Less a quarter of a number's bits, those of about its power -1/4; and the
/// polynomial that corrects the fourth root (numerics/Root4.cpp).
static constexpr int32_t kGuess = 0x4f50a3d7;
static constexpr float kSecond = 0x1.ffe084p-1F, kFirst = -0x1.5a624ap+1F,
                       kZeroth = 0x1.5a93a4p+1F;
static constexpr int32_t kHalf = 0x3f000000, kOne = 0x3f800000;
/// Of a float8 3 bits are behind the point, and its exponent is 7 more.
static constexpr int64_t kDropped = 20;
static constexpr int32_t kFloat8Bias = (127 - 7) << 23;
static constexpr float kLargestFloat8 = 448.0F;
/// Of q4: the middles of cubes of levels, of which the lower bits are cut.
static constexpr int32_t kUnsignedLevels4 = 15, kSignedLevels4 = 7;
static constexpr int32_t kNibble = 15, kLimitBits = ~0xffff;
static constexpr int32_t kDitherFactor = int32_t(0x9e3779b1);
static constexpr float kDitherUnit = 0.97F / 0x1p+16F;
static float getShare(int32_t level) {
  int32_t next = level + 1;
  return float((level * level * level + next * next * next) /
               (2.0 * kSignedLevels4 * kSignedLevels4 * kSignedLevels4));
}

namespace {
/// Of a block of codes that half a warp has: addresses of what the thread has
/// of it. `size` of an idle half is 0.
struct CodeBlock {
  Value values, codes, scale;
  /// Elements of the block, as a word.
  Value size;
  /// Whether all there are can be accessed at once.
  Value whole;
};

/// How codes lie (CodeWords of numerics/Codes.h).
struct CodeWidth {
  int64_t bits;
  /// Codes in an integer, with which each row begins.
  int64_t perWord;
};
constexpr CodeWidth kByte = {8, 1}, kFourBits = {4, 8};

class CodeEmitter {
public:
  using Numbers = std::array<Value, kLanes>;

  CodeEmitter(const Words &w, CodeWidth width)
      : w(w), width(width), i32(w.b.getI32Type()), f32(w.b.getF32Type()) {}

  void emitKernel(StringRef name,
                  function_ref<void(const CodeBlock &)> emitBlock) const;
  /// What a number of 32 bits becomes, of those of one block.
  using Each = std::function<Value(Value)>;
  /// The bits of the scale, and of each number's code the lowest ones.
  struct Encoding {
    Value scale;
    Each encodeOne;
  };
  void decode(const CodeBlock &block,
              Each (CodeEmitter::*begin)(Value) const) const;
  void encode(const CodeBlock &block,
              Encoding (CodeEmitter::*begin)(const Numbers &, Value)
                  const) const;
  // The formats.
  Each decodeRoot4(Value scale) const;
  Encoding encodeRoot4(const Numbers &values, Value top) const;
  Each decodeFloat8(Value scale) const;
  Encoding encodeFloat8(const Numbers &values, Value top) const;
  Each decodeFourBits(Value scale) const;
  Encoding encodeFourBits(const Numbers &values, Value top) const;

private:
  Value integer(int32_t value) const {
    return arith::ConstantOp::create(w.b, w.loc, w.b.getI32IntegerAttr(value));
  }
  Value number(float value) const {
    return arith::ConstantOp::create(w.b, w.loc, w.b.getF32FloatAttr(value));
  }
  Value toBits(Value value) const {
    return arith::BitcastOp::create(w.b, w.loc, i32, value);
  }
  Value toFloat(Value bits) const {
    return arith::BitcastOp::create(w.b, w.loc, f32, bits);
  }
  Value product(Value x, Value y) const {
    return arith::MulFOp::create(w.b, w.loc, x, y);
  }
  Value shiftLeft(Value bits, int64_t count) const {
    return arith::ShLIOp::create(w.b, w.loc, bits, integer(int32_t(count)));
  }
  Value shiftRight(Value bits, int64_t count) const {
    return arith::ShRUIOp::create(w.b, w.loc, bits, integer(int32_t(count)));
  }
  Value sum(Value x, Value y) const {
    return arith::AddFOp::create(w.b, w.loc, x, y);
  }
  Value root(Value x) const { return math::SqrtOp::create(w.b, w.loc, x); }
  Value thread() const;
  /// Whether the thread has element `k` of its four.
  Value has(const CodeBlock &block, int64_t k) const;
  /// All numbers are of 32 bits; those of floats are their bits.
  Numbers load(const CodeBlock &block, Type type, Value address,
               function_ref<Numbers()> emitWhole) const;
  void store(const CodeBlock &block, Value address, Numbers elements,
             function_ref<void()> emitWhole) const;
  Numbers loadCodes(const CodeBlock &block) const;
  void storeCodes(const CodeBlock &block, const Numbers &codes) const;
  /// The bytes of so many elements of a row, from the begin of a block on.
  Value getCodeBytes(Value elements) const;
  CodeBlock locate(ArrayRef<Value> entry, Value number) const;
  Each beginRoots(Value rate) const;
  Value reduce(Value value,
               function_ref<Value(Value, Value)> emitCombined) const;

  Words w;
  CodeWidth width;
  Type i32, f32;
};
} // namespace

/// Of the half of a warp, an index.
Value CodeEmitter::thread() const {
  return w.rem(emitThread(w), w.constant(kThreads));
}

Value CodeEmitter::has(const CodeBlock &block, int64_t k) const {
  Value first = w.mul(w.toWord(thread()), w.constantWord(kLanes));
  return w.isLess(w.add(first, w.constantWord(k)), block.size);
}

/// By `emitWhole`, or one by one; 0 stands for those that are not there.
CodeEmitter::Numbers
CodeEmitter::load(const CodeBlock &block, Type type, Value address,
                  function_ref<Numbers()> emitWhole) const {
  SmallVector<Type> types(kLanes, i32);
  auto branch = scf::IfOp::create(w.b, w.loc, types, block.whole,
                                  /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(w.b);
  w.b.setInsertionPointToStart(branch.thenBlock());
  scf::YieldOp::create(w.b, w.loc, ValueRange(emitWhole()));
  w.b.setInsertionPointToStart(branch.elseBlock());
  SmallVector<Value> loaded;
  for (int64_t k = 0; k < kLanes; ++k)
    loaded.push_back(w.choose(
        i32, has(block, k),
        [&]() -> Value {
          Value value = emitLoad(w, type, 0, address, w.constant(k));
          return type == i32 ? value
                             : arith::ExtUIOp::create(w.b, w.loc, i32, value);
        },
        [&] { return integer(0); }));
  scf::YieldOp::create(w.b, w.loc, loaded);
  Numbers numbers;
  llvm::copy(branch.getResults(), numbers.begin());
  return numbers;
}

void CodeEmitter::store(const CodeBlock &block, Value address, Numbers elements,
                        function_ref<void()> emitWhole) const {
  w.branch(block.whole, emitWhole, [&] {
    for (int64_t k = 0; k < kLanes; ++k)
      w.when(has(block, k), [&] {
        Value element = elements[size_t(k)];
        if (element.getType() == i32)
          element =
              arith::TruncIOp::create(w.b, w.loc, w.b.getI8Type(), element);
        emitStore(w, element.getType(), 0, element, address, w.constant(k));
      });
  });
}

/// Those of a thread are one integer, which lies where one of this size may.
CodeEmitter::Numbers CodeEmitter::loadCodes(const CodeBlock &block) const {
  auto split = [&](Value all) {
    Numbers each;
    for (int64_t k = 0; k < kLanes; ++k)
      each[size_t(k)] = w.both(shiftRight(all, width.bits * k),
                               integer((1 << width.bits) - 1));
    return each;
  };
  if (width.perWord == 1)
    return load(block, w.b.getI8Type(), block.codes, [&] {
      return split(emitLoad(w, i32, 0, block.codes, w.constant(0)));
    });
  Type type = w.b.getIntegerType(unsigned(width.bits * kLanes));
  return split(w.choose(
      i32, has(block, 0),
      [&]() -> Value {
        Value all = emitLoad(w, type, 0, block.codes, w.constant(0));
        return arith::ExtUIOp::create(w.b, w.loc, i32, all);
      },
      [&] { return integer(0); }));
}

void CodeEmitter::storeCodes(const CodeBlock &block,
                             const Numbers &codes) const {
  Value all = integer(0);
  for (auto [k, code] : llvm::enumerate(codes)) {
    Value own = w.both(code, integer((1 << width.bits) - 1));
    all = w.either(all, shiftLeft(own, width.bits * int64_t(k)));
  }
  if (width.perWord == 1)
    return store(block, block.codes, codes, [&] {
      emitStore(w, i32, 0, all, block.codes, w.constant(0));
    });
  // The codes of no elements that a row's last word has are 0.
  Type type = w.b.getIntegerType(unsigned(width.bits * kLanes));
  Value words = w.mul(w.ceilDiv(block.size, width.perWord),
                      w.constantWord(width.perWord));
  Value first = w.mul(w.toWord(thread()), w.constantWord(kLanes));
  w.when(w.isLess(first, words), [&] {
    Value own = arith::TruncIOp::create(w.b, w.loc, type, all);
    emitStore(w, type, 0, own, block.codes, w.constant(0));
  });
}

Value CodeEmitter::getCodeBytes(Value elements) const {
  if (width.perWord == 1)
    return elements;
  return w.mul(w.ceilDiv(elements, width.perWord),
               w.constantWord(width.perWord * width.bits / 8));
}

/// Block `number` (a word) of an entry, or nothing of it.
CodeBlock CodeEmitter::locate(ArrayRef<Value> entry, Value number) const {
  Value size = w.constantWord(kCodeBlock), zero = w.constantWord(0);
  Value columns = entry[STEPC_CODES_ENTRY_COLUMNS];
  Value first = entry[STEPC_CODES_ENTRY_FIRST];
  Value perRow = w.ceilDiv(columns, kCodeBlock);
  Value block = w.add(number, w.div(first, size));
  // A division of words takes long, and most have one row.
  Value row = w.choose(
      zero.getType(), w.isLess(block, perRow), [&] { return zero; },
      [&] { return w.div(block, perRow); });
  Value column = w.mul(w.sub(block, w.mul(row, perRow)), size);
  Value begin = w.sub(w.add(w.mul(row, columns), column), first);
  Value isThere = w.isLess(number, entry[STEPC_CODES_ENTRY_BLOCKS]);
  Value count = w.select(isThere, w.min(size, w.sub(columns, column)), zero);
  Value own = w.add(begin, w.mul(w.toWord(thread()), w.constantWord(kLanes)));
  CodeBlock made;
  made.values = w.add(entry[STEPC_CODES_ENTRY_VALUES],
                      w.mul(own, w.constantWord(sizeof(float))));
  Value ofRow = w.sub(getCodeBytes(column), getCodeBytes(first));
  Value ofThread =
      w.mul(w.toWord(thread()), w.constantWord(kLanes * width.bits / 8));
  made.codes = w.add(w.add(entry[STEPC_CODES_ENTRY_CODES], ofThread),
                     w.add(w.mul(row, getCodeBytes(columns)), ofRow));
  made.scale = w.add(entry[STEPC_CODES_ENTRY_SCALES],
                     w.mul(number, w.constantWord(sizeof(float))));
  made.size = count;
  // The codes of a thread's elements are one access, as its numbers are.
  Value bits =
      w.either(made.values, w.mul(made.codes, w.constantWord(32 / width.bits)));
  made.whole = w.both(w.isEqual(count, size), isAligned(w, bits));
  return made;
}

/// All threads take part in shuffles, also those whose block is not there.
void CodeEmitter::emitKernel(
    StringRef name, function_ref<void(const CodeBlock &)> emitBlock) const {
  step::emitKernel(w, name, 4, [&](ValueRange in) {
    Value list = w.words(in[0]);
    auto [begin, end] = emitRange(w, {w.constantWord(0), in[2], in[3]});
    emitGridLoop(w, begin, end, [&](Value index) {
      Value tile = w.toWord(index);
      Value found = emitFindEntry(w, list, in[1], tile, STEPC_CODES_ENTRY_WORDS,
                                  STEPC_CODES_ENTRY_TILE);
      Value place =
          w.mul(w.toIndex(found), w.constant(STEPC_CODES_ENTRY_WORDS));
      SmallVector<Value> entry;
      for (int64_t k = 0; k < STEPC_CODES_ENTRY_WORDS; ++k)
        entry.push_back(w.load(list, w.add(place, w.constant(k))));
      Value blocks = w.constantWord(STEPC_CODES_TILE_BLOCKS);
      Value first = w.mul(w.sub(tile, entry[STEPC_CODES_ENTRY_TILE]), blocks);
      Value count =
          w.min(w.sub(entry[STEPC_CODES_ENTRY_BLOCKS], first), blocks);
      Value own =
          w.add(first, w.toWord(w.div(emitThread(w), w.constant(kThreads))));
      w.loop(w.constant(0), w.toIndex(count), kAtOnce, [&](Value at) {
        emitBlock(locate(entry, w.add(own, w.toWord(at))));
      });
    });
  });
}

/// What codes of q8 stand for in a block whose scale has these bits.
CodeEmitter::Each CodeEmitter::decodeRoot4(Value scale) const {
  Value isSigned = w.isLess(scale, integer(0));
  Value flip = w.select(isSigned, integer(0x80), integer(0));
  Value step = w.select(isSigned, number(1.0F / kSignedLevels),
                        number(1.0F / kUnsignedLevels));
  Value top = toFloat(w.both(scale, integer(kMagnitude)));
  return [=](Value code) -> Value {
    Value level = w.sub(w.differ(code, flip), flip);
    Value share =
        product(arith::SIToFPOp::create(w.b, w.loc, f32, level), step);
    Value square = product(share, share);
    Value magnitude = toBits(product(product(square, square), top));
    return toFloat(w.either(w.both(magnitude, integer(kMagnitude)),
                            w.both(level, integer(kSign))));
  };
}

/// And those of f8_e4m3 (numerics/Float8.cpp).
CodeEmitter::Each CodeEmitter::decodeFloat8(Value scale) const {
  Value factor = toFloat(scale);
  return [=](Value code) -> Value {
    Value magnitude = w.both(code, integer(0x7f));
    Value normal =
        toFloat(w.add(shiftLeft(magnitude, kDropped), integer(kFloat8Bias)));
    Value small = product(arith::SIToFPOp::create(w.b, w.loc, f32, magnitude),
                          number(0x1p-9F));
    Value isSmall = w.isLess(magnitude, integer(8));
    Value bits = toBits(product(w.select(isSmall, small, normal), factor));
    bits = w.select(w.isEqual(magnitude, integer(0x7f)),
                    integer(kInfinity | 0x400000), bits);
    return toFloat(w.either(bits, shiftLeft(w.both(code, integer(0x80)), 24)));
  };
}

void CodeEmitter::decode(const CodeBlock &block,
                         Each (CodeEmitter::*begin)(Value) const) const {
  w.when(w.isLess(w.constantWord(0), block.size), [&] {
    Value scale = toBits(emitLoad(w, f32, 0, block.scale, w.constant(0)));
    Each decodeOne = (this->*begin)(scale);
    Numbers codes = loadCodes(block);
    Numbers values;
    for (auto [code, value] : llvm::zip(codes, values))
      value = decodeOne(code);
    store(block, block.values, values, [&] {
      auto type = VectorType::get({kLanes}, f32);
      Value vector =
          vector::FromElementsOp::create(w.b, w.loc, type, ValueRange(values));
      emitStore(w, f32, kLanes, vector, block.values, w.constant(0),
                {false, llvm::Align(kAccessBytes)});
    });
  });
}

/// What all threads of the half of a warp have, combined, in each of them.
Value CodeEmitter::reduce(
    Value value, function_ref<Value(Value, Value)> emitCombined) const {
  for (int64_t half = kThreads / 2; half >= 1; half /= 2) {
    auto shuffle = gpu::ShuffleOp::create(w.b, w.loc, value, int32_t(half),
                                          kWarpThreads, gpu::ShuffleMode::XOR);
    value = emitCombined(value, shuffle.getShuffleResult());
  }
  return value;
}

/// What the bits of a number that is not below 0 become: `rate` times its
/// fourth root, rounded in the lowest bits of a number.
CodeEmitter::Each CodeEmitter::beginRoots(Value rate) const {
  return [=](Value magnitude) -> Value {
    Value guess = toFloat(w.sub(integer(kGuess), shiftRight(magnitude, 2)));
    Value own =
        product(product(guess, guess), product(toFloat(magnitude), guess));
    Value t = product(own, guess);
    Value power = sum(product(product(number(kSecond), rate), t),
                      product(number(kFirst), rate));
    power = sum(product(power, t), product(number(kZeroth), rate));
    Value found = toBits(product(own, power));
    // Of what is not 0 more than a half, which is rounded to 1.
    Value least = arith::MinUIOp::create(
        w.b, w.loc, w.add(magnitude, integer(kHalf)), integer(kOne));
    return w.max(found, least);
  };
}

/// How a block of numbers, whose largest magnitude has the bits `top`, is
/// encoded in q8.
CodeEmitter::Encoding CodeEmitter::encodeRoot4(const Numbers &values,
                                               Value top) const {
  Value below = integer(0);
  // The sign bit, but for -0.
  for (Value bits : values)
    below = w.either(below, w.both(bits, w.sub(bits, integer(1))));
  below = reduce(below, [&](Value x, Value y) { return w.either(x, y); });
  Value isSigned = w.isLess(below, integer(0));
  Value levels =
      w.select(isSigned, number(kSignedLevels), number(kUnsignedLevels));
  Value sign = w.select(isSigned, integer(kSign), integer(0));
  Value used = w.max(top, integer(kLeastScale));
  Value rate =
      arith::DivFOp::create(w.b, w.loc, levels, root(root(toFloat(used))));
  Each root = beginRoots(rate);
  auto encodeOne = [=](Value bits) -> Value {
    Value found = root(w.both(bits, integer(kMagnitude)));
    found = w.either(found, w.both(bits, sign));
    return toBits(sum(toFloat(found), number(kRounder)));
  };
  return {w.either(used, sign), encodeOne};
}

CodeEmitter::Encoding CodeEmitter::encodeFloat8(const Numbers &,
                                                Value top) const {
  Value share =
      arith::DivFOp::create(w.b, w.loc, toFloat(top), number(kLargestFloat8));
  Value scale = w.both(w.max(toBits(share), integer(kLeastScale)), integer(~7));
  Value rate = arith::DivFOp::create(w.b, w.loc, number(1.0F), toFloat(scale));
  auto encodeOne = [=](Value bits) -> Value {
    Value magnitude = w.both(bits, integer(kMagnitude));
    Value own = product(toFloat(magnitude), rate);
    Value wide = toBits(own);
    // To the nearest, and to even between two: where units are 2^-9, an
    // addition does it.
    Value odd = w.both(shiftRight(wide, kDropped), integer(1));
    Value half = w.add(odd, integer(0x7ffff));
    Value normal =
        shiftRight(w.sub(w.add(wide, half), integer(kFloat8Bias)), kDropped);
    Value small = w.both(toBits(sum(own, number(0x1.8p+14F))), integer(0xff));
    Value isSmall = w.isLess(wide, integer((127 - 6) << 23));
    Value code = w.select(isSmall, small, normal);
    Value sign = w.both(shiftRight(bits, 24), integer(0x80));
    Value isZero = w.isEqual(magnitude, integer(0));
    code = w.either(w.max(code, integer(1)), sign);
    return w.select(isZero, integer(0), code);
  };
  return {scale, encodeOne};
}

/// And in q4 (numerics/FourBits.cpp).
CodeEmitter::Each CodeEmitter::decodeFourBits(Value scale) const {
  Value isSigned = w.isLess(scale, integer(0));
  Value flip = w.select(isSigned, integer(8), integer(0));
  Value step = w.select(isSigned, number(1.0F / kSignedLevels4),
                        number(1.0F / kUnsignedLevels4));
  Value top = toFloat(w.both(scale, integer(kMagnitude)));
  return [=](Value code) -> Value {
    Value level = w.sub(w.differ(code, flip), flip);
    Value share =
        product(arith::SIToFPOp::create(w.b, w.loc, f32, level), step);
    Value square = product(share, share);
    return product(w.select(isSigned, product(square, share), square), top);
  };
}

CodeEmitter::Encoding CodeEmitter::encodeFourBits(const Numbers &values,
                                                  Value top) const {
  Value zero = integer(0), above = zero, below = zero;
  for (Value bits : values) {
    above = w.max(above, bits);
    Value isBelow = w.isLess(bits, zero);
    below = w.max(below,
                  w.select(isBelow, w.both(bits, integer(kMagnitude)), zero));
  }
  auto emitMax = [&](Value x, Value y) { return w.max(x, y); };
  above = reduce(above, emitMax);
  below = reduce(below, emitMax);
  Value used = w.max(top, integer(kLeastScale));
  std::array<Value, kSignedLevels4> limits;
  for (auto [k, limit] : llvm::enumerate(limits)) {
    Value bits = toBits(product(number(getShare(int32_t(k))), toFloat(used)));
    limit = w.both(bits, integer(kLimitBits));
  }
  Value isSigned = w.isLess(limits[0], below);
  Value rate =
      arith::DivFOp::create(w.b, w.loc, root(number(float(kUnsignedLevels4))),
                            root(root(toFloat(used))));
  Each root = beginRoots(rate);
  auto encodeOne = [=](Value bits) -> Value {
    Value magnitude = w.both(bits, integer(kMagnitude)), level = integer(0);
    for (Value limit : limits)
      level = w.add(
          level, w.select(w.isLess(limit, magnitude), integer(1), integer(0)));
    Value sign = w.select(w.isLess(bits, integer(0)), integer(-1), integer(0));
    level = w.sub(w.differ(level, sign), sign);
    Value positive = w.max(bits, integer(0));
    Value mixed =
        arith::MulIOp::create(w.b, w.loc, positive, integer(kDitherFactor));
    mixed = arith::ShRSIOp::create(w.b, w.loc, mixed, integer(16));
    Value dither = product(arith::SIToFPOp::create(w.b, w.loc, f32, mixed),
                           number(kDitherUnit));
    Value half = toFloat(root(positive));
    Value found = sum(product(half, half), dither);
    found = toBits(sum(found, number(kRounder)));
    Value least = arith::MinUIOp::create(w.b, w.loc, positive, integer(1));
    found = w.max(w.both(found, integer(kNibble)), least);
    return w.both(w.select(isSigned, level, found), integer(kNibble));
  };
  // A block of what is below 0, and next to it, is one of zeros.
  Value isNone = w.both(w.isEqual(above, zero),
                        w.isEqual(w.max(limits[0], below), limits[0]));
  Value sign = w.select(isSigned, integer(kSign), zero);
  return {w.select(isNone, zero, w.either(used, sign)), encodeOne};
}

void CodeEmitter::encode(const CodeBlock &block,
                         Encoding (CodeEmitter::*begin)(const Numbers &, Value)
                             const) const {
  // As integers: what becomes of a NaN as a float nobody says.
  Numbers values = load(block, i32, block.values, [&] {
    Value vector = emitLoad(w, i32, kLanes, block.values, w.constant(0),
                            {false, llvm::Align(kAccessBytes)});
    Numbers each;
    for (int64_t k = 0; k < kLanes; ++k)
      each[size_t(k)] = vector::ExtractOp::create(w.b, w.loc, vector, k);
    return each;
  });
  Value top = integer(0);
  for (Value bits : values)
    top = w.max(top, w.both(bits, integer(kMagnitude)));
  top = reduce(top, [&](Value x, Value y) { return w.max(x, y); });
  Encoding encoding = (this->*begin)(values, top);
  w.when(w.isLess(w.constantWord(0), block.size), [&] {
    Value isNumber = w.isLess(top, integer(kInfinity));
    Numbers codes;
    for (auto [bits, code] : llvm::zip(values, codes))
      code = w.select(isNumber, encoding.encodeOne(bits), integer(0));
    storeCodes(block, codes);
    w.when(w.isEqual(thread(), w.constant(0)), [&] {
      Value isPlain = w.both(isNumber, w.isUnequal(top, integer(0)));
      Value scale = w.select(isPlain, encoding.scale, top);
      emitStore(w, f32, 0, toFloat(scale), block.scale, w.constant(0));
    });
  });
  // Who has stored the scale is at the next block's shuffles with the others.
  emitBarrier(w);
}

/// Whether a program of the module has a state of f32.
static bool hasStates(ModuleOp module) {
  return module
      .walk([](ProgramOp program) {
        for (BlockArgument argument : program.getOperandArguments()) {
          auto type = cast<BufferType>(argument.getType());
          if (type.getElement().isF32() &&
              program.getRole(argument.getArgNumber()).getKind() ==
                  RoleKind::State)
            return WalkResult::interrupt();
        }
        return WalkResult::advance();
      })
      .wasInterrupted();
}

void mlir::step::emitCodeKernels(const Words &w, ModuleOp module) {
  if (!hasStates(module))
    return;
  struct Format {
    const char *name;
    CodeWidth width;
    CodeEmitter::Each (CodeEmitter::*decode)(Value) const;
    CodeEmitter::Encoding (CodeEmitter::*encode)(const CodeEmitter::Numbers &,
                                                 Value) const;
  };
  static constexpr Format kFormats[] = {
      {"q8", kByte, &CodeEmitter::decodeRoot4, &CodeEmitter::encodeRoot4},
      {"f8_e4m3", kByte, &CodeEmitter::decodeFloat8,
       &CodeEmitter::encodeFloat8},
      {"q4", kFourBits, &CodeEmitter::decodeFourBits,
       &CodeEmitter::encodeFourBits},
  };
  for (const Format &format : kFormats) {
    CodeEmitter emitter(w, format.width);
    std::string name = format.name;
    emitter.emitKernel(STEPC_DECODE_KERNEL + name, [&](const CodeBlock &block) {
      emitter.decode(block, format.decode);
    });
    emitter.emitKernel(STEPC_ENCODE_KERNEL + name, [&](const CodeBlock &block) {
      emitter.encode(block, format.encode);
    });
  }
}
