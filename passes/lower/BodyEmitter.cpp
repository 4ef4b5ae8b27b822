//===- BodyEmitter.cpp - the body of a traversal, for elements or vectors -===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/lower/BodyEmitter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::step;

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

Value mlir::step::emitElement(const Words &w, const Operand &operand,
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

Value mlir::step::emitScalar(const Words &w, const ProgramStorage &storage,
                             Value scalar, Value cohort, Value tensor) {
  if (auto constant = scalar.getDefiningOp<arith::ConstantOp>())
    return w.b.clone(*constant)->getResult(0);
  std::optional<int64_t> slot = storage.getCohortSlot(scalar);
  Value row = slot ? cohort : tensor;
  if (!slot)
    slot = storage.getTensorSlot(scalar);
  Value value = w.load(w.view(row, w.b.getF64Type()), *slot);
  if (scalar.getType().isInteger(64))
    return arith::FPToSIOp::create(w.b, w.loc, w.b.getI64Type(), value);
  return scalar.getType().isInteger(1) ? w.isTrue(value) : value;
}

Value mlir::step::emitSlot(const Words &w, Value scalar) {
  Type f64 = w.b.getF64Type();
  if (scalar.getType().isInteger(1))
    return arith::UIToFPOp::create(w.b, w.loc, f64, scalar);
  if (scalar.getType().isInteger(64))
    return arith::SIToFPOp::create(w.b, w.loc, f64, scalar);
  return scalar;
}

BodyEmitter::BodyEmitter(OpBuilder &builder, TraverseOp traverse,
                         const ProgramStorage &storage)
    : builder(builder), traverse(traverse), storage(storage),
      operands(step::getOperands(traverse)),
      accumulators(getAccumulators(traverse)) {}

/// Emits every operation of the body whose operands are all fixed by now.
void BodyEmitter::emitFixed() {
  for (Operation &op : traverse.getBody().front().without_terminator())
    if (!fixed.contains(op.getResult(0)) &&
        llvm::all_of(op.getOperands(),
                     [&](Value value) { return fixed.contains(value); }))
      builder.clone(op, fixed);
}

void BodyEmitter::fixScalars(Value cohort, Value tensor) {
  Words w(builder, traverse.getLoc());
  SmallVector<Value> loaded =
      llvm::map_to_vector(traverse.getScalars(), [&](Value scalar) {
        return emitScalar(w, storage, scalar, cohort, tensor);
      });
  for (auto [argument, value] :
       llvm::zip(traverse.getScalarArguments(), loaded))
    fixed.map(argument, w.narrow(value, argument.getType()));
  emitFixed();
}

void BodyEmitter::fixOperands(ArrayRef<Value> elements) {
  for (auto [operand, element] : llvm::zip(operands, elements))
    if (operand.reads() && element)
      fixed.map(traverse.getBody().getArgument(*operand.element), element);
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
  Block &body = traverse.getBody().front();
  IRMapping mapping(fixed);
  for (auto [k, operand] : llvm::enumerate(operands)) {
    if (!operand.reads())
      continue;
    Value element = body.getArgument(*operand.element);
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
  for (auto [k, operand] : llvm::enumerate(operands))
    if (operand.writes())
      callbacks.store(k, mapping.lookup(results[*operand.yielded]));
  for (auto [k, accumulator] : llvm::enumerate(accumulators))
    callbacks.accumulate(k, mapping.lookup(results[accumulator.yielded]));
}
