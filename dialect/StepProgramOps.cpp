//===- StepProgramOps.cpp - programs, phases and memory by address -----===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/Step.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::step;

int64_t mlir::step::countScalarInputs(OptimizerOp optimizer) {
  int64_t inputs = 0;
  for (Operation &op : optimizer.getBody().front())
    if (isa<HyperOp, ScalarOp, ScalarsOp>(op))
      inputs += op.getNumResults();
  return inputs;
}

static YieldOp getYield(Region &body) {
  if (body.front().empty())
    return {};
  return dyn_cast<YieldOp>(body.front().back());
}

/// What the accumulators of a phase add up, before it is widened to f64.
static Type getComputeType(PhaseOp phase) {
  return cast<ProgramOp>(phase->getParentOp()).getVariant().getCompute();
}

/// Bodies of phases compute and do nothing else. Integer powers, which are
/// loops, are for scalar phases.
static LogicalResult verifyPureBody(Region &body, bool allowsPowers) {
  for (Operation &op : body.front().without_terminator()) {
    bool allowed = isa_and_nonnull<arith::ArithDialect, math::MathDialect>(
                       op.getDialect()) ||
                   op.hasTrait<ExpandedInBodies>() ||
                   (allowsPowers && isa<PowiOp>(op));
    if (!allowed || !isMemoryEffectFree(&op))
      return op.emitOpError("is not allowed in a phase, only arith and math "
                            "without side effects");
  }
  return success();
}

//===----------------------------------------------------------------------===//
// ProgramOp
//===----------------------------------------------------------------------===//

ScalarPhaseOp ProgramOp::getScalarPhase() {
  return cast<ScalarPhaseOp>(getBody().front().front());
}

int64_t ProgramOp::getNumSlots() {
  int64_t slots = 0;
  for (auto phase : getBody().getOps<ScalarPhaseOp>())
    slots += phase.getNumSlots();
  return slots;
}

bool ProgramOp::isTiled() {
  return llvm::any_of(getBody().getOps<PhaseOp>(), [](PhaseOp phase) {
    return phase.getSpace() != Space::Elements;
  });
}

bool ProgramOp::isFlatRange() {
  LayoutAttr layout = getVariant().getLayout();
  if (!layout || !layout.isFlat())
    return false;
  for (auto operand : getOperands().getAsRange<OperandAttr>())
    if (operand.getKind() == RoleKind::Param)
      return !isVector(operand.getShape());
  return false;
}

int64_t ProgramOp::findBuffer(StringRef name) {
  for (auto [index, buffer] :
       llvm::enumerate(getWorkspace().getAsRange<BufferAttr>()))
    if (buffer.getName().getValue() == name)
      return index;
  return -1;
}

/// Each operand of the phase is one of the program's, in the same storage.
static LogicalResult verifyOperands(ProgramOp program, PhaseOp phase) {
  for (auto operand : phase.getOperands().getAsRange<OperandAttr>()) {
    bool known =
        llvm::any_of(program.getOperands().getAsRange<OperandAttr>(),
                     [&](OperandAttr other) {
                       return other.getKind() == operand.getKind() &&
                              other.getName() == operand.getName() &&
                              other.getStorage() == operand.getStorage() &&
                              other.getShape() == operand.getShape();
                     });
    if (operand.getKind() == RoleKind::Temp)
      known = program.findBuffer(operand.getName()) >= 0;
    if (!known)
      return phase.emitOpError()
             << "works on '" << operand.getName().getValue()
             << "', which the program does not have in that storage and shape";
  }
  for (auto accumulator : phase.getAccumulators().getAsRange<AccumulatorAttr>())
    if (program.findBuffer(accumulator.getPartial()) < 0)
      return phase.emitOpError()
             << "accumulates in '" << accumulator.getPartial().getValue()
             << "', which is not in the program's workspace";
  return success();
}

static LogicalResult verifyPhase(ProgramOp program, PhaseOp phase) {
  if (int64_t(phase.getNumSlots()) != program.getNumSlots())
    return phase.emitOpError()
           << "has " << phase.getNumSlots() << " slots; the scalar phase has "
           << program.getNumSlots();
  if (phase.getTensorSlots() != program.getTensorSlots())
    return phase.emitOpError() << "has " << phase.getTensorSlots()
                               << " slots of the tensor; the program has "
                               << program.getTensorSlots();
  if ((phase.getSpace() != Space::Elements) != program.isTiled())
    return phase.emitOpError("traverses elements in a program of other spaces");
  return verifyOperands(program, phase);
}

/// Of `step.combine` and `step.receive`: the buffers and the slot exist.
template <typename OpT>
static LogicalResult verifyPlaces(ProgramOp program, OpT op,
                                  ArrayRef<StringRef> names) {
  for (StringRef name : names)
    if (!name.empty() && program.findBuffer(name) < 0)
      return op.emitOpError() << "works on '" << name
                              << "', which is not in the program's workspace";
  if (op.getSlot() &&
      (int64_t(*op.getSlot()) < 0 || *op.getSlot() >= program.getTensorSlots()))
    return op.emitOpError()
           << "writes slot " << *op.getSlot() << " of the tensor, which has "
           << program.getTensorSlots();
  return success();
}

static LogicalResult verifyTensorScalars(ProgramOp program,
                                         TensorScalarsOp scalars) {
  if (int64_t(scalars.getNumSlots()) != program.getNumSlots() ||
      scalars.getTensorSlots() != program.getTensorSlots())
    return scalars.emitOpError()
           << "takes " << scalars.getNumSlots() << " and "
           << scalars.getTensorSlots() << " slots; the program has "
           << program.getNumSlots() << " and " << program.getTensorSlots();
  return success();
}

std::optional<int64_t> mlir::step::getSegment(Operation *op) {
  return llvm::TypeSwitch<Operation *, std::optional<int64_t>>(op)
      .Case<ScalarPhaseOp, PhaseOp, CombineOp, ReceiveOp, TensorScalarsOp>(
          [](auto entry) { return int64_t(entry.getSegment()); })
      .Default([](Operation *) { return std::nullopt; });
}

static LogicalResult verifyEntry(ProgramOp program, Operation &op) {
  if (auto phase = dyn_cast<PhaseOp>(op))
    return verifyPhase(program, phase);
  if (auto combine = dyn_cast<CombineOp>(op))
    return verifyPlaces(program, combine,
                        {combine.getPartial(), combine.getTemp().value_or(""),
                         combine.getExchange().value_or("")});
  if (auto receive = dyn_cast<ReceiveOp>(op)) {
    SmallVector<StringRef> names{receive.getTemp().value_or("")};
    llvm::append_range(names, receive.getSources());
    return verifyPlaces(program, receive, names);
  }
  if (auto scalars = dyn_cast<TensorScalarsOp>(op))
    return verifyTensorScalars(program, scalars);
  auto phase = cast<ScalarPhaseOp>(op);
  int64_t inputs = countScalarInputs(program->getParentOfType<OptimizerOp>());
  if (phase.getNumInputs() != inputs)
    return phase.emitOpError() << "takes " << phase.getNumInputs()
                               << " hyper-parameters, scalars and results; the "
                                  "optimizer has "
                               << inputs;
  size_t freshes = program.getFreshLists().size();
  if (phase.getNumFreshes() != int64_t(freshes))
    return phase.emitOpError() << "takes " << phase.getNumFreshes()
                               << " fresh flags; the program has " << freshes;
  return success();
}

/// What is said to be fresh are states of the program.
static LogicalResult verifyFresh(ProgramOp program) {
  for (ArrayAttr list : program.getFreshLists())
    for (auto name : list.getAsRange<StringAttr>())
      if (llvm::none_of(program.getOperands().getAsRange<OperandAttr>(),
                        [&](OperandAttr operand) {
                          return operand.getKind() == RoleKind::State &&
                                 operand.getName() == name;
                        }))
        return program.emitOpError() << "asks whether '" << name.getValue()
                                     << "' is fresh, which is no state of it";
  return success();
}

Type ProgramOp::getParamShape() {
  for (auto operand : getOperands().getAsRange<OperandAttr>())
    if (operand.getKind() == RoleKind::Param)
      return operand.getShape();
  return {};
}

SmallVector<ArrayAttr> ProgramOp::getFreshLists() {
  if (!getFresh())
    return {ArrayAttr::get(getContext(), {})};
  return llvm::to_vector(getFresh()->getAsRange<ArrayAttr>());
}

LogicalResult ProgramOp::verifyRegions() {
  if (failed(verifyName(*this, "program", getSymName())))
    return failure();
  Block &block = getBody().front();
  if (block.empty() || !isa<ScalarPhaseOp>(block.front()))
    return emitOpError("does not begin with a scalar phase");
  if (getBody().getOps<PhaseOp>().empty())
    return emitOpError("has no phase");
  if (failed(verifyFresh(*this)))
    return failure();
  int64_t current = 0;
  for (Operation &op : block) {
    std::optional<int64_t> segment = getSegment(&op);
    if (!segment)
      return op.emitOpError("is not allowed in a program, only phases");
    if (*segment < current)
      return op.emitOpError() << "is of segment " << *segment
                              << " and stands after one of segment " << current;
    current = *segment;
    if (failed(verifyEntry(*this, op)))
      return failure();
  }
  return success();
}

//===----------------------------------------------------------------------===//
// ScalarPhaseOp
//===----------------------------------------------------------------------===//

int64_t ScalarPhaseOp::getNumSlots() {
  return getYield(getBody()).getValues().size();
}
int64_t ScalarPhaseOp::getNumInputs() {
  return llvm::count_if(getBody().getArgumentTypes(),
                        [](Type type) { return type.isF64(); });
}
int64_t ScalarPhaseOp::getNumFreshes() {
  return getBody().getNumArguments() - getNumInputs() - 1;
}

void ScalarPhaseOp::getAsmBlockArgumentNames(Region &region,
                                             OpAsmSetValueNameFn setName) {
  SmallVector<StringRef> names;
  if (auto optimizer = (*this)->getParentOfType<OptimizerOp>())
    for (auto hyper : optimizer.getBody().getOps<HyperOp>())
      names.push_back(hyper.getName());
  while (int64_t(names.size()) < getNumInputs())
    names.push_back("input");
  names.push_back("count");
  names.resize(region.getNumArguments(), "fresh");
  for (auto [argument, name] : llvm::zip(region.getArguments(), names))
    setName(argument, name);
}

LogicalResult ScalarPhaseOp::verifyRegions() {
  if (failed(verifyName(*this, "phase", getSymName())))
    return failure();
  if (!getYield(getBody()))
    return emitOpError("does not end in 'step.yield'");
  TypeRange types = getBody().getArgumentTypes();
  while (!types.empty() && types.front().isF64())
    types = types.drop_front();
  if (types.empty() || !types.front().isInteger(64) ||
      !llvm::all_of(types.drop_front(),
                    [](Type type) { return type.isInteger(1); }))
    return emitOpError("takes other arguments than f64 hyper-parameters, an "
                       "i64 count and i1 flags");
  for (Type type : getYield(getBody()).getValues().getTypes())
    if (!type.isF64())
      return emitOpError() << "yields " << type << " for a slot, which is f64";
  return verifyPureBody(getBody(), /*allowsPowers=*/true);
}

//===----------------------------------------------------------------------===//
// PhaseOp
//===----------------------------------------------------------------------===//

void PhaseOp::getAsmBlockArgumentNames(Region &region,
                                       OpAsmSetValueNameFn setName) {
  SmallVector<StringRef> names(
      std::min<uint64_t>(getNumSlots() + getTensorSlots(),
                         region.getNumArguments()),
      "slot");
  for (auto operand : getOperands().getAsRange<OperandAttr>())
    if (operand.getReads())
      names.push_back(operand.getName());
  for (auto [argument, name] : llvm::zip(region.getArguments(), names))
    setName(argument, name);
}

LogicalResult PhaseOp::verifyRegions() {
  if (failed(verifyName(*this, "phase", getSymName())))
    return failure();
  YieldOp yield = getYield(getBody());
  if (!yield)
    return emitOpError("does not end in 'step.yield'");
  int64_t numSlots = getNumSlots() + getTensorSlots();
  if (numSlots < 0 || numSlots > getBody().getNumArguments())
    return emitOpError() << "has " << numSlots << " slots and "
                         << getBody().getNumArguments() << " arguments";
  SmallVector<Type> arguments(numSlots, Float64Type::get(getContext()));
  SmallVector<Type> results;
  for (auto operand : getOperands().getAsRange<OperandAttr>()) {
    if (operand.getReads())
      arguments.push_back(operand.getStorage());
    if (operand.getWrites())
      results.push_back(operand.getStorage());
  }
  if (auto unless = getUnless()) {
    if (int64_t(*unless) < 0 || *unless >= getTensorSlots())
      return emitOpError() << "is left out by slot " << *unless << " of "
                           << getTensorSlots() << " of the tensor";
    if (getSpace() != Space::Tiles || !results.empty())
      return emitOpError("is left out, but is not of tiles or writes operands");
  }
  if (getTrailing() && (getSpace() != Space::Tiles || getUnless()))
    return emitOpError("is trailing, but is not of tiles or may be left out");
  Type compute = getComputeType(*this);
  results.append(getAccumulators().size(), compute);
  if (TypeRange(arguments) != getBody().getArgumentTypes())
    return emitOpError() << "takes " << getBody().getArgumentTypes()
                         << "; slots and operands give " << arguments;
  if (TypeRange(results) != TypeRange(yield.getValues().getTypes()))
    return emitOpError() << "yields " << yield.getValues().getTypes()
                         << "; operands give " << results;
  return verifyPureBody(getBody(), /*allowsPowers=*/false);
}

//===----------------------------------------------------------------------===//
// CombineOp, ReceiveOp and TensorScalarsOp
//===----------------------------------------------------------------------===//

LogicalResult CombineOp::verify() {
  if (bool(getTemp()) + bool(getSlot()) + bool(getExchange()) != 1)
    return emitOpError("names not one of a temp, a slot and an exchange");
  if (!getExchange() && bool(getSlot()) != (getLevel() == Level::Tensor))
    return emitOpError() << "combines to " << stringifyLevel(getLevel())
                         << (getSlot() ? " in a slot" : " in a temp");
  if (getUnless() && getLevel() != Level::Tensor)
    return emitOpError() << "combines to " << stringifyLevel(getLevel())
                         << ", which cannot be left out";
  return success();
}

SmallVector<StringRef> ReceiveOp::getSources() {
  SmallVector<StringRef> names;
  for (auto name : getExchanges().getAsRange<StringAttr>())
    names.push_back(name.getValue());
  return names;
}

LogicalResult ReceiveOp::verify() {
  if (getExchanges().empty())
    return emitOpError("receives nothing");
  if (bool(getTemp()) == bool(getSlot()))
    return emitOpError("names both or neither of a temp and a slot");
  if (bool(getSlot()) != (getLevel() == Level::Tensor))
    return emitOpError() << "receives " << stringifyLevel(getLevel())
                         << (getSlot() ? " in a slot" : " in a temp");
  return success();
}

LogicalResult TensorScalarsOp::verifyRegions() {
  if (failed(verifyName(*this, "tensor_scalars", getSymName())))
    return failure();
  YieldOp yield = getYield(getBody());
  if (!yield)
    return emitOpError("does not end in 'step.yield'");
  auto isF64 = [](Type type) { return type.isF64(); };
  if (getBody().getNumArguments() != getNumSlots() + getTensorSlots() ||
      !llvm::all_of(getBody().getArgumentTypes(), isF64))
    return emitOpError() << "takes other arguments than " << getNumSlots()
                         << " and " << getTensorSlots() << " slots";
  if (yield.getValues().size() != getWrites().size() ||
      !llvm::all_of(yield.getValues().getTypes(), isF64))
    return emitOpError() << "does not yield an f64 for each of "
                         << getWrites().size() << " slots";
  for (int64_t slot : getWrites())
    if (slot < 0 || slot >= int64_t(getTensorSlots()))
      return emitOpError() << "writes slot " << slot << " of "
                           << getTensorSlots();
  return verifyPureBody(getBody(), /*allowsPowers=*/true);
}

//===----------------------------------------------------------------------===//
// ViewOp
//===----------------------------------------------------------------------===//

LogicalResult ViewOp::verify() {
  auto type = cast<MemRefType>(getResult().getType());
  if (type.getRank() != 1 || !type.isDynamicDim(0) ||
      !type.getLayout().isIdentity())
    return emitOpError() << "makes " << type
                         << ", which is not a one-dimensional contiguous "
                            "memref of dynamic extent";
  return success();
}
