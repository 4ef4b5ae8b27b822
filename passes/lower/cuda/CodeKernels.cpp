//===- CodeKernels.cpp - kernels of states that are kept as codes ---------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Half a warp has a block, each thread four elements side by side; the largest
// magnitude goes around by shuffles. What the formats do is in CodeFormats.cpp.
//
//===----------------------------------------------------------------------===//
#include "passes/lower/cuda/EngineKernels.h"

#include "passes/lower/BodyEmitter.h"
#include "passes/lower/cuda/BlockTree.h"
#include "passes/lower/cuda/CodeEmitter.h"
#include "passes/lower/cuda/ElementKernel.h"
#include "passes/lower/cuda/GridKernel.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::step;

static constexpr int64_t kWarpThreads = 32;
static constexpr int64_t kLanes = kCodeLanes, kThreads = kCodeThreads;
/// Blocks of codes that the threads of a block have at a time.
static constexpr int64_t kAtOnce = kBlockThreads / kThreads;
static_assert(STEPC_CODES_TILE_BLOCKS % kAtOnce == 0 &&
              kWarpThreads % kThreads == 0);

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
