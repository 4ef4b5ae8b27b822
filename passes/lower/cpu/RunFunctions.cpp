//===- RunFunctions.cpp - functions over one run of elements --------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/lower/cpu/RunFunctions.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;
using namespace mlir::step;

int64_t mlir::step::getElementBytes(OperandAttr operand) {
  return operand.getStorage().getIntOrFloatBitWidth() / 8;
}

/// The type of an element in memory: 16-bit floats are kept as i16, which every
/// target can load and store.
static Type getMemoryType(Type storage) {
  unsigned width = storage.getIntOrFloatBitWidth();
  return width == 16 ? Type(IntegerType::get(storage.getContext(), 16))
                     : storage;
}

namespace {
/// Emits the body of one phase for one element or one vector of elements.
///
/// State: `scalars` maps every value of the body that depends on slots and
/// constants alone; those are emitted once, when the emitter is made, outside
/// of all loops. What remains is cloned for each element type, a vector of
/// `lanes` elements or, for 0 lanes, a scalar.
class BodyEmitter {
public:
  BodyEmitter(OpBuilder &builder, PhaseOp phase, Value scalarsAddress)
      : builder(builder), phase(phase),
        operands(phase.getOperands().getAsRange<OperandAttr>()) {
    emitScalars(scalarsAddress);
  }

  /// Loads, computes and stores. `addresses` are those of element 0 of each
  /// operand, `index` counts elements from there.
  void emit(int64_t lanes, ValueRange addresses, Value index);

private:
  void emitScalars(Value scalarsAddress);
  Value load(OperandAttr operand, int64_t lanes, Value address, Value index);
  void store(OperandAttr operand, int64_t lanes, Value value, Value address,
             Value index);
  Operation *cloneFor(int64_t lanes, Operation &op, IRMapping &mapping);

  OpBuilder &builder;
  PhaseOp phase;
  SmallVector<OperandAttr> operands;
  IRMapping scalars;
};
} // namespace

static Value makeView(OpBuilder &builder, Location loc, Value address,
                      Type element) {
  return ViewOp::create(
      builder, loc, MemRefType::get({ShapedType::kDynamic}, element), address);
}

void BodyEmitter::emitScalars(Value scalarsAddress) {
  Location loc = phase.getLoc();
  Value row = makeView(builder, loc, scalarsAddress, builder.getF64Type());
  Block &body = phase.getBody().front();
  for (int64_t slot = 0; slot < int64_t(phase.getNumSlots()); ++slot) {
    Value index = arith::ConstantIndexOp::create(builder, loc, slot);
    scalars.map(body.getArgument(slot),
                memref::LoadOp::create(builder, loc, row, ValueRange{index}));
  }
  for (Operation &op : body.without_terminator())
    if (llvm::all_of(op.getOperands(),
                     [&](Value value) { return scalars.contains(value); }))
      builder.clone(op, scalars);
}

Value BodyEmitter::load(OperandAttr operand, int64_t lanes, Value address,
                        Value index) {
  Location loc = phase.getLoc();
  Type memory = getMemoryType(operand.getStorage());
  Type storage = operand.getStorage();
  Value view = makeView(builder, loc, address, memory);
  Value element;
  if (lanes) {
    storage = VectorType::get({lanes}, storage);
    element =
        vector::LoadOp::create(builder, loc, VectorType::get({lanes}, memory),
                               view, ValueRange{index});
  } else {
    element = memref::LoadOp::create(builder, loc, view, ValueRange{index});
  }
  return element.getType() == storage
             ? element
             : arith::BitcastOp::create(builder, loc, storage, element);
}

void BodyEmitter::store(OperandAttr operand, int64_t lanes, Value value,
                        Value address, Value index) {
  Location loc = phase.getLoc();
  Type memory = getMemoryType(operand.getStorage());
  Value view = makeView(builder, loc, address, memory);
  auto shaped = dyn_cast<VectorType>(value.getType());
  Type type = shaped ? Type(shaped.clone(memory)) : memory;
  if (value.getType() != type)
    value = arith::BitcastOp::create(builder, loc, type, value);
  // A value that does not depend on the elements is one for all of them. It is
  // bits by now: nothing but conversions handles bf16.
  if (lanes && !shaped)
    value = vector::BroadcastOp::create(
        builder, loc, VectorType::get({lanes}, memory), value);
  if (lanes)
    vector::StoreOp::create(builder, loc, value, view, ValueRange{index});
  else
    memref::StoreOp::create(builder, loc, value, view, ValueRange{index});
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

void BodyEmitter::emit(int64_t lanes, ValueRange addresses, Value index) {
  Block &body = phase.getBody().front();
  IRMapping mapping(scalars);
  unsigned argument = phase.getNumSlots();
  for (auto [operand, address] : llvm::zip(operands, addresses))
    if (operand.getReads())
      mapping.map(body.getArgument(argument++),
                  load(operand, lanes, address, index));
  for (Operation &op : body.without_terminator()) {
    if (scalars.contains(op.getResult(0)))
      continue;
    Operation *clone = cloneFor(lanes, op, mapping);
    mapping.map(op.getResults(), clone->getResults());
  }
  unsigned result = 0;
  for (auto [operand, address] : llvm::zip(operands, addresses)) {
    if (!operand.getWrites())
      continue;
    Value value = mapping.lookup(body.getTerminator()->getOperand(result++));
    store(operand, lanes, value, address, index);
  }
}

//===----------------------------------------------------------------------===//
// Loops
//===----------------------------------------------------------------------===//

namespace {
/// How the loops over a contiguous run are cut.
struct LoopShape {
  int64_t lanes; // elements of one vector: 512 bits of the compute type
  int64_t group; // elements of one iteration: one line of the narrowest operand

  explicit LoopShape(PhaseOp phase) {
    auto program = cast<ProgramOp>(phase->getParentOp());
    int64_t computeBytes =
        program.getVariant().getCompute().getIntOrFloatBitWidth() / 8;
    int64_t narrowest = computeBytes;
    for (auto operand : phase.getOperands().getAsRange<OperandAttr>())
      narrowest = std::min(narrowest, getElementBytes(operand));
    lanes = kLineBytes / computeBytes;
    group = kLineBytes / narrowest;
  }
};
} // namespace

/// Asks for the lines that the iteration at `index` of `group` elements will
/// need `lines` lines from there.
static void emitPrefetch(OpBuilder &builder, PhaseOp phase,
                         ValueRange addresses, Value index, int64_t group,
                         int64_t lines) {
  Location loc = phase.getLoc();
  Type i64 = builder.getI64Type();
  Value position = arith::IndexCastOp::create(builder, loc, i64, index);
  for (auto [operand, address] :
       llvm::zip(phase.getOperands().getAsRange<OperandAttr>(), addresses)) {
    if (!operand.getReads() && !operand.getWrites())
      continue;
    int64_t bytes = getElementBytes(operand);
    Value scale = arith::ConstantIntOp::create(builder, loc, i64, bytes);
    Value offset = arith::MulIOp::create(builder, loc, position, scale);
    Value current = arith::AddIOp::create(builder, loc, address, offset);
    for (int64_t line = 0; line < group * bytes / kLineBytes; ++line) {
      Value ahead = arith::ConstantIntOp::create(builder, loc, i64,
                                                 (lines + line) * kLineBytes);
      Value target = arith::AddIOp::create(builder, loc, current, ahead);
      PrefetchOp::create(builder, loc, target, operand.getWrites());
    }
  }
}

/// Emits `for (i = begin; i < end; i += step)`; `emitBody` fills it.
static void emitLoop(OpBuilder &builder, Location loc, Value begin, Value end,
                     int64_t step, function_ref<void(Value)> emitBody) {
  Value stepValue = arith::ConstantIndexOp::create(builder, loc, step);
  auto loop = scf::ForOp::create(builder, loc, begin, end, stepValue);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(loop.getBody());
  emitBody(loop.getInductionVar());
}

/// `count` rounded down to a multiple of `unit`, a power of two.
static Value emitFloor(OpBuilder &builder, Location loc, Value count,
                       int64_t unit) {
  Value mask = arith::ConstantIndexOp::create(builder, loc, -unit);
  return arith::AndIOp::create(builder, loc, count, mask);
}

/// A private function of `numWords` i64 arguments and an index.
static func::FuncOp makeRunFunction(OpBuilder &builder, Location loc,
                                    StringRef name, int64_t numWords) {
  SmallVector<Type> types(numWords, builder.getI64Type());
  types.push_back(builder.getIndexType());
  auto function = func::FuncOp::create(builder, loc, name,
                                       builder.getFunctionType(types, {}));
  function.setPrivate();
  // Inlined into the kernels, which are the only names outside.
  function->setAttr(
      "llvm.linkage",
      LLVM::LinkageAttr::get(builder.getContext(), LLVM::Linkage::Internal));
  function.addEntryBlock();
  return function;
}

func::FuncOp mlir::step::emitContiguousRun(OpBuilder &builder, PhaseOp phase,
                                           StringRef name,
                                           int64_t prefetchLines) {
  Location loc = phase.getLoc();
  OpBuilder::InsertionGuard guard(builder);
  int64_t numOperands = phase.getOperands().size();
  func::FuncOp function = makeRunFunction(builder, loc, name, 1 + numOperands);
  Block &entry = function.getBody().front();
  builder.setInsertionPointToStart(&entry);
  BodyEmitter body(builder, phase, entry.getArgument(0));
  ValueRange addresses = entry.getArguments().slice(1, numOperands);
  Value count = entry.getArguments().back();

  LoopShape shape(phase);
  Value zero = arith::ConstantIndexOp::create(builder, loc, 0);
  Value groups = emitFloor(builder, loc, count, shape.group);
  Value vectors = emitFloor(builder, loc, count, shape.lanes);
  auto emitGroup = [&](Value index) {
    for (int64_t lane = 0; lane < shape.group; lane += shape.lanes) {
      Value offset = arith::ConstantIndexOp::create(builder, loc, lane);
      Value position = arith::AddIOp::create(builder, loc, index, offset);
      body.emit(shape.lanes, addresses, position);
    }
  };
  // The prefetching loop runs on long runs only, the plain one on what it left.
  Value plainBegin = zero;
  if (prefetchLines) {
    Value shortRun = arith::ConstantIndexOp::create(builder, loc, kShortRun);
    Value isLong = arith::CmpIOp::create(
        builder, loc, arith::CmpIPredicate::sge, count, shortRun);
    Value longEnd = arith::SelectOp::create(builder, loc, isLong, groups, zero);
    emitLoop(builder, loc, zero, longEnd, shape.group, [&](Value index) {
      emitPrefetch(builder, phase, addresses, index, shape.group,
                   prefetchLines);
      emitGroup(index);
    });
    plainBegin = longEnd;
  }
  emitLoop(builder, loc, plainBegin, groups, shape.group, emitGroup);
  if (shape.group != shape.lanes)
    emitLoop(builder, loc, groups, vectors, shape.lanes,
             [&](Value index) { body.emit(shape.lanes, addresses, index); });
  emitLoop(builder, loc, vectors, count, 1,
           [&](Value index) { body.emit(0, addresses, index); });
  func::ReturnOp::create(builder, loc);
  return function;
}

func::FuncOp mlir::step::emitStridedRun(OpBuilder &builder, PhaseOp phase,
                                        StringRef name) {
  Location loc = phase.getLoc();
  OpBuilder::InsertionGuard guard(builder);
  int64_t numOperands = phase.getOperands().size();
  func::FuncOp function =
      makeRunFunction(builder, loc, name, 1 + 2 * numOperands);
  Block &entry = function.getBody().front();
  builder.setInsertionPointToStart(&entry);
  BodyEmitter body(builder, phase, entry.getArgument(0));
  ValueRange addresses = entry.getArguments().slice(1, numOperands);
  ValueRange strides = entry.getArguments().slice(1 + numOperands, numOperands);
  Value zero = arith::ConstantIndexOp::create(builder, loc, 0);
  emitLoop(builder, loc, zero, entry.getArguments().back(), 1, [&](Value i) {
    Value position =
        arith::IndexCastOp::create(builder, loc, builder.getI64Type(), i);
    SmallVector<Value> elements;
    for (auto [address, stride] : llvm::zip(addresses, strides)) {
      Value offset = arith::MulIOp::create(builder, loc, position, stride);
      elements.push_back(arith::AddIOp::create(builder, loc, address, offset));
    }
    body.emit(0, elements, zero);
  });
  func::ReturnOp::create(builder, loc);
  return function;
}
