//===- ElementKernel.cpp - device kernels of the elements space -----------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/lower/cuda/ElementKernel.h"

#include "passes/lower/ElementRow.h"
#include "passes/lower/cuda/GridKernel.h"

using namespace mlir;
using namespace mlir::step;

namespace {
/// Emits the kernels of one phase. Each block of threads has a chunk; its
/// threads share the elements.
class ElementKernelEmitter {
public:
  ElementKernelEmitter(OpBuilder &builder, TraverseOp traverse,
                       const ProgramStorage &storage)
      : w(builder, traverse.getLoc()), traverse(traverse), storage(storage),
        operands(getOperands(traverse)) {}

  void emit();

private:
  func::FuncOp emitRun(StringRef name);
  func::FuncOp emitStridedRun(StringRef name);
  void emitBody(BodyEmitter &body, int64_t lanes, ValueRange addresses,
                Value index);
  Value areAligned(ValueRange addresses) const;
  AccessHints getHints(const Operand &operand) const;
  int64_t getLanes() const;

  Words w;
  TraverseOp traverse;
  const ProgramStorage &storage;
  SmallVector<Operand> operands;
};
} // namespace

/// As many elements as the narrowest operand has in one access; wider ones take
/// several.
int64_t ElementKernelEmitter::getLanes() const {
  int64_t narrowest = 8;
  for (const Operand &operand : operands)
    narrowest = std::min(narrowest, operand.getBytes());
  return kAccessBytes / narrowest;
}

/// States are the optimizer's own: nobody reads them before the next step.
AccessHints ElementKernelEmitter::getHints(const Operand &operand) const {
  return {operand.isState(), llvm::Align(kAccessBytes)};
}

void ElementKernelEmitter::emitBody(BodyEmitter &body, int64_t lanes,
                                    ValueRange addresses, Value index) {
  body.emit(lanes, {[&](unsigned k) {
                      return emitLoad(w, operands[k].getStorage(), lanes,
                                      addresses[k], index,
                                      getHints(operands[k]));
                    },
                    [&](unsigned k, Value value) {
                      emitStore(w, operands[k].getStorage(), lanes, value,
                                addresses[k], index, getHints(operands[k]));
                    },
                    [](unsigned, Value) {}});
}

Value mlir::step::isAligned(const Words &w, Value bits) {
  Value mask = w.constantWord(kAccessBytes - 1);
  return w.isZero(w.both(bits, mask));
}

Value ElementKernelEmitter::areAligned(ValueRange addresses) const {
  Value bits = w.constantWord(0);
  for (Value address : addresses)
    bits = w.either(bits, address);
  return isAligned(w, bits);
}

/// `void name(scalars, addresses..., count)`: the phase on `count` consecutive
/// elements, by vectors where every address permits, and what is left one by
/// one.
func::FuncOp ElementKernelEmitter::emitRun(StringRef name) {
  OpBuilder::InsertionGuard guard(w.b);
  func::FuncOp function =
      makeInternalFunction(w.b, w.loc, name, 1 + operands.size(), 1);
  Block &entry = function.getBody().front();
  w.b.setInsertionPointToStart(&entry);
  BodyEmitter body(w.b, traverse, storage);
  body.fixScalars(entry.getArgument(0), Value());
  ValueRange addresses = entry.getArguments().slice(1, operands.size());
  Value count = entry.getArguments().back();
  int64_t lanes = getLanes();
  Value thread = emitThread(w);
  Value vectors =
      w.select(areAligned(addresses), w.floorTo(count, lanes), w.constant(0));
  w.loop(w.mul(thread, w.constant(lanes)), vectors, lanes * kBlockThreads,
         [&](Value i) { emitBody(body, lanes, addresses, i); });
  w.loop(w.add(vectors, thread), count, kBlockThreads,
         [&](Value i) { emitBody(body, 0, addresses, i); });
  func::ReturnOp::create(w.b, w.loc);
  return function;
}

/// `void name(row, start, count)`: the phase on the elements from number
/// `start` on of a strided row, one by one.
func::FuncOp ElementKernelEmitter::emitStridedRun(StringRef name) {
  OpBuilder::InsertionGuard guard(w.b);
  func::FuncOp function = makeInternalFunction(w.b, w.loc, name, 2, 1);
  Block &entry = function.getBody().front();
  w.b.setInsertionPointToStart(&entry);
  ElementRow row(w, operands, entry.getArgument(0));
  Value start = entry.getArgument(1);
  BodyEmitter body(w.b, traverse, storage);
  body.fixScalars(row.getScalars(), Value());
  Value rank = row.getRank();
  w.loop(emitThread(w), entry.getArgument(2), kBlockThreads, [&](Value i) {
    SmallVector<Value> offsets =
        row.emitOffsets(rank, w.add(start, w.toWord(i)));
    SmallVector<Value> addresses;
    for (auto [k, offset] : llvm::enumerate(offsets))
      addresses.push_back(row.getAddress(k, offset));
    emitBody(body, 0, addresses, w.constant(0));
  });
  func::ReturnOp::create(w.b, w.loc);
  return function;
}

void ElementKernelEmitter::emit() {
  std::string name = traverse.getSymName().str();
  func::FuncOp run = emitRun(name + "_run");
  func::FuncOp stridedRun = emitStridedRun(name + "_strided_run");
  emitChunkKernel(w, name, [&](const CallWords &call, Value entry) {
    Chunk chunk = readChunk(w, call, entry);
    ElementRow row(w, operands, chunk.row);
    SmallVector<Value> arguments{row.getScalars()};
    for (int64_t k = 0; k < int64_t(operands.size()); ++k)
      arguments.push_back(row.getAddress(k, chunk.start));
    arguments.push_back(w.toIndex(chunk.length));
    func::CallOp::create(w.b, w.loc, run, arguments);
  });
  emitChunkKernel(w, name + "_strided",
                  [&](const CallWords &call, Value entry) {
                    Chunk chunk = readChunk(w, call, entry);
                    func::CallOp::create(w.b, w.loc, stridedRun,
                                         ValueRange{chunk.row, chunk.start,
                                                    w.toIndex(chunk.length)});
                  });
}

void mlir::step::emitElementKernels(OpBuilder &builder, TraverseOp traverse,
                                    const ProgramStorage &storage) {
  ElementKernelEmitter(builder, traverse, storage).emit();
}
