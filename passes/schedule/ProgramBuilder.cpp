//===- ProgramBuilder.cpp - the program of a planned rule -----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/schedule/ProgramBuilder.h"

#include "passes/schedule/ScalarCode.h"
#include "passes/shard/Sharding.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/BuiltinAttributes.h"

using namespace mlir;
using namespace mlir::step;

ProgramBuilder::ProgramBuilder(RuleOp rule, Rounds &rounds,
                               RuleAnalysis &analysis,
                               TraversalPlan &traversals, FinishPlan &finish)
    : rule(rule), rounds(rounds), analysis(analysis), traversals(traversals),
      finish(finish), builder(rule.getContext()),
      compute(rule.getVariantAttr().getCompute()) {}

//===----------------------------------------------------------------------===//
// What the program has
//===----------------------------------------------------------------------===//

void ProgramBuilder::collectSlots() {
  llvm::SetVector<Value> met;
  auto meet = [&](Value value) {
    if (analysis.getDomain(value) == Domain::Cohort)
      met.insert(value);
  };
  for (Operation &op : rule.getBody().front().without_terminator())
    if (op.getNumResults() == 1 &&
        analysis.getDomain(op.getResult(0)) != Domain::Cohort)
      llvm::for_each(op.getOperands(), meet);
  for (const SmallStep &step : finish.getSteps())
    llvm::for_each(step.copies, meet);
  slots = met.takeVector();
  llvm::stable_sort(slots, [&](Value a, Value b) {
    return rounds.getSegment(a) < rounds.getSegment(b);
  });
}

OperandAttr ProgramBuilder::getOperand(unsigned argument, bool reads,
                                       bool writes) const {
  RuleOp op = rule;
  RoleAttr role = op.getRole(argument);
  return OperandAttr::get(
      role.getContext(), role.getKind(),
      StringAttr::get(role.getContext(), role.getDisplayName()),
      op.getBody().getArgument(argument).getType(), role.getStorage(),
      role.getInit(), reads, writes);
}

void ProgramBuilder::collectOperands() {
  llvm::SetVector<unsigned> reads;
  for (const Traversal &traversal : traversals.getTraversals()) {
    reads.insert_range(traversal.reads);
    for (Value input : traversal.inputs)
      if (auto argument = dyn_cast<BlockArgument>(input))
        reads.insert(argument.getArgNumber());
  }
  for (const SmallStep &step : finish.getSteps()) {
    auto read = [&](Value value) {
      if (auto argument = dyn_cast<BlockArgument>(value))
        reads.insert(argument.getArgNumber());
    };
    for (Operation *op : step.ops)
      llvm::for_each(op->getOperands(), read);
    for (unsigned argument : step.stores)
      read(analysis.getStoredValue(argument));
  }
  for (BlockArgument argument : rule.getBody().getArguments()) {
    unsigned index = argument.getArgNumber();
    // An argument that is only returned as itself is not touched at all.
    if (rule.getRole(index).isTensor())
      operands.push_back(getOperand(index, reads.contains(index),
                                    bool(analysis.getStoredValue(index))));
  }
}

static SmallVector<StringRef> getVectorSize(Domain domain) {
  switch (domain) {
  case Domain::Rows:
    return {"B", "N"};
  case Domain::Columns:
    return {"B", "M"};
  default:
    return {"B"};
  }
}

/// One entry for each result of the reduction.
static SmallVector<StringRef> getExchangeSize(Domain result) {
  if (result == Domain::Tensor)
    return {"1"};
  return getVectorSize(result);
}

/// The buffer that a traversal of the input's space leaves partial sums in.
static SmallVector<StringRef> getPartialSize(Domain input, bool columns,
                                             bool flatRange) {
  switch (input) {
  case Domain::Rows:
    return {"B", "N1"};
  case Domain::Columns:
    return {"B", "ML"};
  case Domain::Items:
    return {"B1"};
  default:
    if (flatRange)
      return columns ? SmallVector<StringRef>{"L", "M"}
                     : SmallVector<StringRef>{"R", "ML"};
    if (columns)
      return {"B", "NL", "M"};
    return {"B", "N", "ML"};
  }
}

bool ProgramBuilder::isFlatRange() {
  LayoutAttr layout = rule.getVariantAttr().getLayout();
  return layout && layout.isFlat() &&
         !isVector(rule.getArgumentOfKind(RoleKind::Param).getType());
}

void ProgramBuilder::collectBuffers() {
  MLIRContext *context = builder.getContext();
  auto add = [&](const Twine &name, ArrayRef<StringRef> size, Type element,
                 bool live, ExchangeAttr exchange = {}) {
    SmallVector<StringAttr> factors;
    for (StringRef factor : size)
      factors.push_back(builder.getStringAttr(factor));
    buffers.push_back(BufferAttr::get(context, builder.getStringAttr(name),
                                      factors, element, live, exchange));
  };
  for (auto [value, live] : finish.getTemps()) {
    unsigned number = tempNumbers.size();
    tempNumbers[value] = number;
    add("temp" + Twine(number), getVectorSize(analysis.getDomain(value)),
        compute, live);
  }
  unsigned number = 0;
  for (auto reduction : rule.getBody().front().getOps<ReductionOpInterface>()) {
    partialNumbers[reduction] = number;
    number += reduction.getInputs().size();
    Domain input = analysis.getDomain(reduction.getInput());
    Value result = reduction->getResult(0);
    bool columns = analysis.getDomain(result) == Domain::Columns;
    Type f64 = builder.getF64Type();
    for (const std::string &partial : getPartialNames(reduction))
      add(partial, getPartialSize(input, columns, isFlatRange()), f64,
          /*live=*/false);
    ExchangeAttr exchange;
    if (reduction.getAcrossAttr())
      exchange = ExchangeAttr::get(
          context, analysis.getTime(result).segment - 1,
          getCrossedDims(rule, reduction), getCombiner(reduction));
    for (const std::string &whole : getWholeNames(reduction))
      add(whole, getExchangeSize(analysis.getDomain(result)), f64,
          /*live=*/bool(exchange), exchange);
  }
}

static std::vector<std::string> numberNames(StringRef prefix, unsigned first,
                                            size_t count) {
  std::vector<std::string> names;
  for (size_t index = 0; index < count; ++index)
    names.push_back((prefix + Twine(first + index)).str());
  return names;
}

std::vector<std::string>
ProgramBuilder::getPartialNames(ReductionOpInterface reduction) {
  return numberNames("partial", partialNumbers.lookup(reduction),
                     reduction.getInputs().size());
}

std::vector<std::string>
ProgramBuilder::getWholeNames(ReductionOpInterface reduction) {
  bool crosses = bool(reduction.getAcrossAttr());
  size_t inputs = reduction.getInputs().size();
  if (!crosses && inputs == 1)
    return {};
  return numberNames(crosses ? "exchange" : "whole",
                     partialNumbers.lookup(reduction), inputs);
}

OperandAttr ProgramBuilder::getTemp(Value value) const {
  MLIRContext *context = compute.getContext();
  Type type = value.getType();
  if (auto mask = dyn_cast<SymMaskType>(type))
    type = SymTensorType::get(context, mask.getDims());
  auto name =
      StringAttr::get(context, "temp" + Twine(tempNumbers.lookup(value)));
  return OperandAttr::get(context, RoleKind::Temp, name, type, compute,
                          FloatAttr(), /*reads=*/true, /*writes=*/false);
}

/// Statistic, slot and segment of each contribution.
SmallVector<int64_t> ProgramBuilder::getContributions() {
  SmallVector<int64_t> triples;
  auto optimizer = rule->getParentOfType<OptimizerOp>();
  SmallVector<StatisticOp> statistics(
      optimizer.getBody().getOps<StatisticOp>());
  for (auto contribute : rule.getBody().front().getOps<ContributeOp>()) {
    StatisticOp statistic = contribute.getStatisticOp();
    triples.push_back(llvm::find(statistics, statistic) - statistics.begin());
    triples.push_back(getSlotNumber(contribute.getValue()));
    triples.push_back(analysis.getTime(contribute.getValue()).segment);
  }
  return triples;
}

/// Of each carried scalar its slot, and that of the scalar it stands for.
SmallVector<int64_t> ProgramBuilder::getCarried() {
  SmallVector<int64_t> pairs;
  for (auto carry : rule.getBody().front().getOps<CarryOp>()) {
    pairs.push_back(getSlotNumber(carry.getCarried()));
    pairs.push_back(getSlotNumber(carry.getRecomputed()));
  }
  return pairs;
}

int64_t ProgramBuilder::getSlotNumber(Value value) const {
  return llvm::find(finish.getSlots(), value) - finish.getSlots().begin();
}

/// Statistics to which the rank contributes its part.
SmallVector<int64_t> ProgramBuilder::getPartialStatistics() {
  SmallVector<int64_t> partial;
  auto optimizer = rule->getParentOfType<OptimizerOp>();
  SmallVector<StatisticOp> statistics(
      optimizer.getBody().getOps<StatisticOp>());
  for (auto contribute : rule.getBody().front().getOps<ContributeOp>())
    if (isPartial(rule, contribute.getValue()))
      partial.push_back(llvm::find(statistics, contribute.getStatisticOp()) -
                        statistics.begin());
  return partial;
}

/// One traversal does all, and nothing but elements and scalars of the cohort
/// is needed, whatever other rules exchange.
bool ProgramBuilder::isElementwise() {
  for (BlockArgument argument : rule.getBody().getArguments())
    if (isShaped(argument.getType()) &&
        analysis.getDomain(argument) != Domain::Full)
      return false;
  return finish.getSteps().empty() && finish.getSlots().empty() &&
         traversals.getTraversals().size() <= 1 &&
         rounds.getScalarsOps().empty();
}

//===----------------------------------------------------------------------===//
// Scalars
//===----------------------------------------------------------------------===//

/// The scalar as an f64 slot keeps it.
static Value toSlot(OpBuilder &builder, Value value) {
  Location loc = value.getLoc();
  if (value.getType().isInteger(1))
    return arith::UIToFPOp::create(builder, loc, builder.getF64Type(), value);
  if (value.getType().isInteger(64))
    return arith::SIToFPOp::create(builder, loc, builder.getF64Type(), value);
  return value;
}

/// The slot as the body uses it: a condition, a count, or rounded to the
/// element type.
static Value readSlot(OpBuilder &builder, Type type, Value slot, Type element) {
  Location loc = slot.getLoc();
  if (type.isInteger(64))
    return arith::FPToSIOp::create(builder, loc, type, slot);
  if (type.isInteger(1)) {
    Value zero =
        arith::ConstantOp::create(builder, loc, builder.getF64FloatAttr(0.0));
    return arith::CmpFOp::create(builder, loc, arith::CmpFPredicate::UNE, slot,
                                 zero);
  }
  if (element.isF64())
    return slot;
  return arith::TruncFOp::create(builder, loc, element, slot);
}

void ProgramBuilder::addSlotArguments(Block *block, IRMapping &mapping,
                                      Type element) {
  for (Value slot : llvm::concat<const Value>(ArrayRef<Value>(slots),
                                              finish.getSlots().getArrayRef()))
    block->addArgument(builder.getF64Type(), slot.getLoc());
  builder.setInsertionPointToEnd(block);
  unsigned position = 0;
  for (Value slot : slots)
    mapping.map(slot, readSlot(builder, slot.getType(),
                               block->getArgument(position++), element));
  for (Value slot : finish.getSlots()) {
    Value argument = block->getArgument(position++);
    if (analysis.getDomain(slot) == Domain::Tensor)
      mapping.map(slot, readSlot(builder, slot.getType(), argument, element));
  }
}

void ProgramBuilder::buildScalarPhase(int64_t segment) {
  SmallVector<Value> own;
  int64_t firstSlot = 0;
  for (Value slot : slots) {
    if (rounds.getSegment(slot) == segment)
      own.push_back(slot);
    firstSlot += rounds.getSegment(slot) < segment;
  }
  if (segment > 0 && own.empty())
    return;
  std::string suffix =
      segment ? "_scalars" + std::to_string(segment) : std::string("_scalars");
  auto phase = ScalarPhaseOp::create(builder, rule.getLoc(), makeName(suffix),
                                     segment, firstSlot);
  OpBuilder::InsertionGuard guard(builder);
  Block *block = builder.createBlock(&phase.getBody());
  IRMapping mapping;
  auto optimizer = rule->getParentOfType<OptimizerOp>();
  for (Value input : getScalarInputs(optimizer))
    block->addArgument(builder.getF64Type(), input.getLoc());
  BlockArgument count = block->addArgument(builder.getI64Type(), rule.getLoc());
  BlockArgument fresh = block->addArgument(builder.getI1Type(), rule.getLoc());
  for (auto [input, argument] :
       llvm::zip(getScalarInputs(optimizer), block->getArguments()))
    mapping.map(input, readSlot(builder, input.getType(), argument,
                                builder.getF64Type()));
  if (BlockArgument argument = rule.getArgumentOfKind(RoleKind::Count))
    mapping.map(argument, count);
  if (BlockArgument argument = rule.getArgumentOfKind(RoleKind::Fresh))
    mapping.map(argument, fresh);
  for (Operation &op : rule.getBody().front().without_terminator())
    if (op.getNumResults() == 1 &&
        analysis.getDomain(op.getResult(0)) == Domain::Cohort &&
        rounds.getSegment(op.getResult(0)) <= segment)
      mapping.map(op.getResult(0),
                  emitScalarCode(builder, &op, mapping, builder.getF64Type()));
  SmallVector<Value> values;
  for (Value slot : own)
    values.push_back(toSlot(builder, mapOrMaterialize(builder, slot, mapping,
                                                      builder.getF64Type())));
  YieldOp::create(builder, rule.getLoc(), values);
}

void ProgramBuilder::buildTensorScalars(const SmallStep &step) {
  IRMapping mapping;
  Type f64 = builder.getF64Type();
  SmallVector<Value> kept(step.copies);
  for (Operation *op : step.ops)
    if (finish.getSlots().contains(op->getResult(0)))
      kept.push_back(op->getResult(0));
  SmallVector<int64_t> writes;
  for (Value value : kept)
    writes.push_back(getSlotNumber(value));
  for (CarryOp carry : step.carries) {
    kept.push_back(carry.getValue());
    writes.push_back(getSlotNumber(carry.getCarried()));
  }
  auto scalars = TensorScalarsOp::create(
      builder, rule.getLoc(), makeName("_small" + Twine(numSmallPhases++)),
      slots.size(), finish.getSlots().size(), writes,
      step.position.time.segment);
  OpBuilder::InsertionGuard guard(builder);
  Block *block = builder.createBlock(&scalars.getBody());
  addSlotArguments(block, mapping, f64);
  for (Operation *op : step.ops)
    mapping.map(op->getResult(0), emitScalarCode(builder, op, mapping, f64));
  SmallVector<Value> values;
  for (Value value : kept)
    values.push_back(
        toSlot(builder, mapOrMaterialize(builder, value, mapping, f64)));
  YieldOp::create(builder, rule.getLoc(), values);
}

//===----------------------------------------------------------------------===//
// The whole
//===----------------------------------------------------------------------===//

void ProgramBuilder::beginSegment(int64_t segment) {
  while (begun < segment) {
    buildScalarPhase(++begun);
    buildReceives(begun);
  }
}

/// Builds those that are due and not yet built.
void ProgramBuilder::buildSteps(function_ref<bool(const Position &)> isDue) {
  SmallVector<const SmallStep *> left;
  for (const SmallStep *step : steps) {
    if (!isDue(step->position)) {
      left.push_back(step);
      continue;
    }
    beginSegment(step->position.time.segment);
    buildStep(*step);
  }
  steps = std::move(left);
}

/// A traversal and those that trail it: between them stands only what is of
/// their rows. Returns the index of the next.
size_t ProgramBuilder::buildTrain(size_t first) {
  ArrayRef<Traversal> all = traversals.getTraversals();
  buildSteps([&](const Position &position) {
    return position.time <= all[first].time;
  });
  beginSegment(all[first].time.segment);
  size_t next = first;
  do {
    if (next > first)
      buildSteps([&](const Position &position) {
        return position == Position{all[next].time, kRowBlock};
      });
    buildTraversal(next);
    ++next;
  } while (next < all.size() && all[next].isTrailing);
  for (const Traversal &traversal : all.slice(first, next - first))
    for (ReductionOpInterface reduction : traversal.reductions)
      if (!traversals.isOfRowBlock(reduction))
        buildCombine(reduction, Space::Tiles, traversal.time.segment);
  return next;
}

void ProgramBuilder::build() {
  collectSlots();
  collectOperands();
  bool elementwise = isElementwise();
  if (!elementwise)
    collectBuffers();
  builder.setInsertionPoint(rule);
  VariantAttr variant = rule.getVariantAttr();
  // Elements are the same wherever they lie.
  if (elementwise)
    variant = VariantAttr::get(builder.getContext(), variant.getRule(),
                               variant.getOptions(), variant.getCompute(), {});
  program = ProgramOp::create(
      builder, rule.getLoc(), rule.getSymName(), variant,
      builder.getArrayAttr(operands), builder.getArrayAttr(buffers),
      int64_t(finish.getSlots().size()), getContributions(),
      getPartialStatistics(), getCarried());
  if (Attribute owned = rule->getAttr(kOwnedLayouts))
    program->setAttr(kOwnedLayouts, owned);
  builder.createBlock(&program.getBody());
  beginSegment(0);
  if (elementwise)
    return buildElements();

  for (const SmallStep &step : finish.getSteps())
    steps.push_back(&step);
  for (size_t index = 0; index < traversals.getTraversals().size();)
    index = buildTrain(index);
  buildSteps([](const Position &) { return true; });
  // What is received may be used in no later entry than a contribution.
  for (auto reduction : rule.getBody().front().getOps<ReductionOpInterface>())
    beginSegment(analysis.getTime(reduction->getResult(0)).segment);
}
