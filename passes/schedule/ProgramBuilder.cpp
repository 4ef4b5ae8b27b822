//===- ProgramBuilder.cpp - the program of a planned rule -----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/schedule/ProgramBuilder.h"

#include "passes/shard/Sharding.h"

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

/// Statistic, and place in the layout, of each dim over which the rank has only
/// a part of what it contributes.
SmallVector<int64_t> ProgramBuilder::getPartialStatistics() {
  SmallVector<int64_t> pairs;
  auto optimizer = rule->getParentOfType<OptimizerOp>();
  SmallVector<StatisticOp> statistics(
      optimizer.getBody().getOps<StatisticOp>());
  for (auto contribute : rule.getBody().front().getOps<ContributeOp>())
    for (StringAttr dim : getPartialDims(rule, contribute.getValue())) {
      DictionaryAttr layout = rule.getVariantAttr().getLayout().getDims();
      auto found = llvm::find_if(layout, [&](NamedAttribute sharded) {
        return sharded.getName() == dim;
      });
      pairs.push_back(llvm::find(statistics, contribute.getStatisticOp()) -
                      statistics.begin());
      pairs.push_back(found - layout.begin());
    }
  return pairs;
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

/// The states that each fresh of the rule speaks of; null where it has none.
ArrayAttr ProgramBuilder::getFresh() {
  SmallVector<Attribute> lists;
  for (BlockArgument fresh : rule.getFreshes()) {
    ArrayAttr states = rule.getRole(fresh.getArgNumber()).getStates();
    lists.push_back(states ? states : rule.getStateNames());
  }
  return lists.empty() ? ArrayAttr() : builder.getArrayAttr(lists);
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
      getPartialStatistics(), getCarried(), getFresh());
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
