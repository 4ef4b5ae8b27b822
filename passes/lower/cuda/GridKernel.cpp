//===- GridKernel.cpp - entry points on a device --------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/lower/cuda/GridKernel.h"

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

using namespace mlir;
using namespace mlir::step;

Value mlir::step::emitThread(const Words &w) {
  return gpu::ThreadIdOp::create(w.b, w.loc, gpu::Dimension::x);
}

gpu::GPUFuncOp mlir::step::emitKernel(const Words &w, StringRef name,
                                      int64_t words,
                                      function_ref<void(ValueRange)> emitBody) {
  OpBuilder::InsertionGuard guard(w.b);
  SmallVector<Type> types(words, w.b.getI64Type());
  auto kernel =
      gpu::GPUFuncOp::create(w.b, w.loc, name, w.b.getFunctionType(types, {}));
  kernel->setAttr(gpu::GPUDialect::getKernelFuncAttrName(), w.b.getUnitAttr());
  kernel.setKnownBlockSize(ArrayRef<int32_t>{kBlockThreads, 1, 1});
  w.b.setInsertionPointToStart(&kernel.getBody().front());
  emitBody(kernel.getArguments());
  gpu::ReturnOp::create(w.b, w.loc);
  return kernel;
}

void mlir::step::requireBlocks(gpu::GPUFuncOp kernel, int32_t blocks) {
  OpBuilder builder(kernel);
  kernel->setAttr(NVVM::NVVMDialect::getMinctasmAttrName(),
                  builder.getI32IntegerAttr(blocks));
}

void mlir::step::emitOnce(const Words &w, function_ref<void()> emitBody) {
  w.when(w.isEqual(emitGridThread(w).first, w.constant(0)), emitBody);
}

std::pair<Value, Value> mlir::step::emitGridThread(const Words &w) {
  Value block = gpu::BlockIdOp::create(w.b, w.loc, gpu::Dimension::x);
  Value blocks = gpu::GridDimOp::create(w.b, w.loc, gpu::Dimension::x);
  Value size = w.constant(kBlockThreads);
  return {w.add(w.mul(block, size), emitThread(w)), w.mul(blocks, size)};
}

std::pair<Value, Value> mlir::step::emitRange(const Words &w,
                                              ValueRange range) {
  Value runs = w.isZero(w.load(w.words(range[2]), int64_t(0)));
  return {w.toIndex(range[0]), w.toIndex(w.select(runs, range[1], range[0]))};
}

void mlir::step::emitGridLoop(const Words &w, Value begin, Value end,
                              function_ref<void(Value)> emitBody) {
  Value block = gpu::BlockIdOp::create(w.b, w.loc, gpu::Dimension::x);
  Value blocks = gpu::GridDimOp::create(w.b, w.loc, gpu::Dimension::x);
  w.loop(w.add(begin, block), end, blocks, emitBody);
}

gpu::GPUFuncOp mlir::step::emitChunkKernel(
    const Words &w, StringRef name,
    function_ref<void(const CallWords &, Value number)> emitEntry,
    int64_t parts) {
  return emitKernel(w, name, 7, [&](ValueRange in) {
    CallWords call{in[0], in[1], in[2], in[3], Value()};
    auto [begin, end] = emitRange(w, in.drop_front(4));
    if (parts != 1) {
      begin = w.mul(begin, w.constant(parts));
      end = w.mul(end, w.constant(parts));
    }
    emitGridLoop(w, begin, end, [&](Value number) { emitEntry(call, number); });
  });
}

gpu::GPUFuncOp mlir::step::emitSpreadKernel(
    const Words &w, StringRef name,
    function_ref<Value(const CallWords &, Value number, Value word)>
        emitEntry) {
  return emitKernel(w, name, 7, [&](ValueRange in) {
    CallWords call{in[0], in[1], in[2], in[3], Value()};
    auto [begin, end] = emitRange(w, in.drop_front(4));
    w.fold(begin, end, 1, w.constantWord(0), [&](Value number, Value word) {
      return emitEntry(call, number, word);
    });
  });
}

gpu::GPUFuncOp
mlir::step::emitBlockListKernel(const Words &w, StringRef name, int64_t words,
                                function_ref<void(ArrayRef<Value>)> emitEntry) {
  return emitKernel(w, name, 4, [&](ValueRange in) {
    Value list = w.words(in[0]);
    auto [begin, end] = emitRange(w, in.drop_front());
    emitGridLoop(w, begin, end, [&](Value number) {
      Value first = w.mul(number, w.constant(words));
      SmallVector<Value> entry;
      for (int64_t k = 0; k < words; ++k)
        entry.push_back(w.load(list, w.add(first, w.constant(k))));
      emitEntry(entry);
    });
  });
}

Value mlir::step::emitFindEntry(const Words &w, Value list, Value entries,
                                Value tile, int64_t entryWords,
                                int64_t tileWord) {
  Value one = w.constantWord(1);
  auto halve = [&](ValueRange range) -> SmallVector<Value> {
    Value low = range[0], high = range[1];
    Value middle = w.div(w.add(low, high), w.constantWord(2));
    Value word = w.add(w.mul(middle, w.constantWord(entryWords)),
                       w.constantWord(tileWord));
    Value isBehind = w.isLess(tile, w.load(list, w.toIndex(word)));
    return {w.select(isBehind, low, middle), w.select(isBehind, middle, high)};
  };
  return w.repeatAll(
      {w.constantWord(0), entries},
      [&](ValueRange range) {
        return w.isLess(one, w.sub(range[1], range[0]));
      },
      halve)[0];
}

void mlir::step::emitThreadLoop(const Words &w, ValueRange range,
                                function_ref<void(Value)> emitBody) {
  auto [thread, threads] = emitGridThread(w);
  auto [begin, end] = emitRange(w, range);
  w.loop(w.add(begin, thread), end, threads, emitBody);
}

/// Whether one of `count` words (a word) from `address` on is not 0.
static Value emitAnySet(const Words &w, Value address, Value count) {
  Value flags = w.words(address), zero = w.constantWord(0);
  Value any = w.fold(w.constant(0), w.toIndex(count), 1, zero,
                     [&](Value k, Value before) {
                       return w.either(before, w.load(flags, k));
                     });
  return w.isUnequal(any, zero);
}

void mlir::step::emitListKernel(const Words &w, StringRef name,
                                func::FuncOp function) {
  emitKernel(w, name, 4, [&](ValueRange in) {
    int64_t count = function.getNumArguments();
    bool returns = function.getNumResults();
    int64_t words = count + (returns ? 3 : 0);
    Value list = w.words(in[0]);
    emitThreadLoop(w, in.drop_front(), [&](Value entry) {
      Value first = w.mul(entry, w.constant(words));
      auto load = [&](int64_t k) {
        return w.load(list, w.add(first, w.constant(k)));
      };
      SmallVector<Value> arguments;
      for (int64_t k = 0; k < count; ++k)
        arguments.push_back(load(k));
      auto call = [&] {
        return func::CallOp::create(w.b, w.loc, function, arguments);
      };
      if (!returns) {
        call();
        return;
      }
      Value to = w.words(load(count)), zero = w.constant(0);
      w.branch(
          emitAnySet(w, load(count + 1), load(count + 2)),
          [&] { w.store(call().getResult(0), to, zero); },
          [&] { w.store(w.constantWord(0), to, zero); });
    });
  });
}
