//===- BodyEmitter.cpp - the body of a phase, for elements or vectors -----===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/lower/BodyEmitter.h"

#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::step;

int64_t mlir::step::getElementBytes(OperandAttr operand) {
  return operand.isInMemory() ? operand.getStorage().getIntOrFloatBitWidth() / 8
                              : 1;
}

bool mlir::step::isTouched(OperandAttr operand) {
  return operand.isInMemory() && (operand.getReads() || operand.getWrites());
}

/// The type of an element in memory: 16-bit floats are kept as i16, which every
/// target can load and store.
static Type getMemoryType(Type storage) {
  unsigned width = storage.getIntOrFloatBitWidth();
  return width == 16 ? Type(IntegerType::get(storage.getContext(), 16))
                     : storage;
}

Value mlir::step::emitLoad(const Words &w, Type storage, int64_t lanes,
                           Value address, Value index, AccessHints hints) {
  Type memory = getMemoryType(storage);
  Value view = w.view(address, memory);
  Value element;
  if (lanes) {
    storage = VectorType::get({lanes}, storage);
    element = vector::LoadOp::create(
        w.b, w.loc, VectorType::get({lanes}, memory), view, ValueRange{index},
        hints.nontemporal, hints.alignment);
  } else {
    element = w.load(view, index);
  }
  return element.getType() == storage
             ? element
             : arith::BitcastOp::create(w.b, w.loc, storage, element);
}

Value mlir::step::emitElement(const Words &w, OperandAttr operand,
                              int64_t lanes, Value address, Value index,
                              AccessHints hints) {
  if (operand.isInMemory())
    return emitLoad(w, operand.getStorage(), lanes, address, index, hints);
  Value first = w.add(address, w.toWord(index));
  if (!lanes)
    return first;
  auto type = VectorType::get({lanes}, first.getType());
  SmallVector<int64_t> steps = llvm::to_vector(llvm::seq<int64_t>(0, lanes));
  Value numbers = arith::ConstantOp::create(
      w.b, w.loc, DenseElementsAttr::get(type, ArrayRef<int64_t>(steps)));
  return w.add(vector::BroadcastOp::create(w.b, w.loc, type, first), numbers);
}

void mlir::step::emitStore(const Words &w, Type storage, int64_t lanes,
                           Value value, Value address, Value index,
                           AccessHints hints) {
  Type memory = getMemoryType(storage);
  Value view = w.view(address, memory);
  auto shaped = dyn_cast<VectorType>(value.getType());
  Type type = shaped ? Type(shaped.clone(memory)) : memory;
  if (value.getType() != type)
    value = arith::BitcastOp::create(w.b, w.loc, type, value);
  // It is bits by now: nothing but conversions handles bf16.
  if (lanes && !shaped)
    value = vector::BroadcastOp::create(
        w.b, w.loc, VectorType::get({lanes}, memory), value);
  if (lanes)
    vector::StoreOp::create(w.b, w.loc, value, view, ValueRange{index},
                            hints.nontemporal, hints.alignment);
  else
    w.store(value, view, index);
}

BodyEmitter::BodyEmitter(OpBuilder &builder, PhaseOp phase)
    : builder(builder), phase(phase),
      operands(phase.getOperands().getAsRange<OperandAttr>()) {}

/// Emits every operation of the body whose operands are all fixed by now.
void BodyEmitter::emitFixed() {
  for (Operation &op : phase.getBody().front().without_terminator())
    if (!fixed.contains(op.getResult(0)) &&
        llvm::all_of(op.getOperands(),
                     [&](Value value) { return fixed.contains(value); }))
      builder.clone(op, fixed);
}

void BodyEmitter::fixSlots(Value scalars, Value tensorSlots) {
  Words w(builder, phase.getLoc());
  Block &body = phase.getBody().front();
  Type f64 = builder.getF64Type();
  int64_t numSlots = phase.getNumSlots();
  Value row = w.view(scalars, f64);
  for (int64_t slot = 0; slot < numSlots; ++slot)
    fixed.map(body.getArgument(slot), w.load(row, slot));
  if (phase.getTensorSlots()) {
    Value own = w.view(tensorSlots, f64);
    for (int64_t slot = 0; slot < int64_t(phase.getTensorSlots()); ++slot)
      fixed.map(body.getArgument(numSlots + slot), w.load(own, slot));
  }
  emitFixed();
}

void BodyEmitter::fixOperands(ArrayRef<Value> elements) {
  unsigned argument = phase.getNumSlots() + phase.getTensorSlots();
  for (auto [operand, element] : llvm::zip(operands, elements)) {
    if (!operand.getReads())
      continue;
    if (element)
      fixed.map(phase.getBody().getArgument(argument), element);
    ++argument;
  }
  emitFixed();
}

/// Clones an operation of the body with vectors in place of scalars. Scalars
/// that it meets are broadcast, but for the condition of a select, which may
/// stay one.
Operation *BodyEmitter::cloneFor(int64_t lanes, Operation &op,
                                 IRMapping &mapping) {
  if (!lanes)
    return builder.clone(op, mapping);
  SmallVector<Value> in;
  for (OpOperand &operand : op.getOpOperands()) {
    Value value = mapping.lookup(operand.get());
    bool keep = isa<VectorType>(value.getType()) ||
                (isa<arith::SelectOp>(op) && operand.getOperandNumber() == 0);
    if (!keep)
      value = vector::BroadcastOp::create(
          builder, op.getLoc(), VectorType::get({lanes}, value.getType()),
          value);
    in.push_back(value);
  }
  OperationState state(op.getLoc(), op.getName());
  state.addOperands(in);
  for (Type type : op.getResultTypes())
    state.addTypes(VectorType::get({lanes}, type));
  state.addAttributes(op.getAttrs());
  return builder.create(state);
}

void BodyEmitter::emit(int64_t lanes, const Callbacks &callbacks) {
  Block &body = phase.getBody().front();
  IRMapping mapping(fixed);
  unsigned argument = phase.getNumSlots() + phase.getTensorSlots();
  for (auto [k, operand] : llvm::enumerate(operands)) {
    if (!operand.getReads())
      continue;
    Value element = body.getArgument(argument++);
    if (!mapping.contains(element))
      mapping.map(element, callbacks.load(k));
  }
  for (Operation &op : body.without_terminator()) {
    if (fixed.contains(op.getResult(0)))
      continue;
    Operation *clone = cloneFor(lanes, op, mapping);
    mapping.map(op.getResults(), clone->getResults());
  }
  auto results = body.getTerminator()->getOperands();
  unsigned result = 0;
  for (auto [k, operand] : llvm::enumerate(operands))
    if (operand.getWrites())
      callbacks.store(k, mapping.lookup(results[result++]));
  for (unsigned k = 0; k < phase.getAccumulators().size(); ++k)
    callbacks.accumulate(k, mapping.lookup(results[result++]));
}
